package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/spf13/pflag"
)

// manual reads docs/operations.md.
func manual(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// steps are the shell commands under a heading of the manual, without comments.
func steps(t *testing.T, heading string) []string {
	t.Helper()
	_, text, ok := strings.Cut(manual(t), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("the manual has no %q", heading)
	}
	if next := strings.Index(text, "\n#"); next >= 0 {
		text = text[:next]
	}
	var all []string
	for i, block := range strings.Split(text, "```") {
		if code, ok := strings.CutPrefix(block, "sh\n"); ok && i%2 == 1 {
			all = append(all, strings.Split(strings.TrimSpace(code), "\n")...)
		}
	}
	return all
}

// words splits a command as a shell does, as far as the manual needs it.
func words(line string) []string {
	line, _, _ = strings.Cut(line, " #")
	var all []string
	for _, w := range regexp.MustCompile(`"[^"]*"|'[^']*'|[^\s]+`).FindAllString(line, -1) {
		all = append(all, strings.Trim(w, `"'`))
	}
	return all
}

// Every command of the documents exists, with its flags and arguments. One that has any has all
// that are required; a command without is only spoken of.
func TestManualCommands(t *testing.T) {
	t.Parallel()
	text := manual(t)
	for _, name := range []string{"telemetry", "scheduling"} {
		b, err := os.ReadFile("../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	commands := regexp.MustCompile("(?m)^claimctl .*$|`claimctl [^`]*`").FindAllString(text, -1)
	if len(commands) < 40 {
		t.Errorf("only %d commands were found", len(commands))
	}
	for _, command := range commands {
		command, _, _ = strings.Cut(strings.Trim(command, "`"), " | ")
		command, _, _ = strings.Cut(command, " > ")
		args := words(command)[1:]
		a := &app{out: io.Discard, err: io.Discard, in: &bytes.Buffer{}}
		root := a.root()
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd()
		cmd, rest, err := root.Find(args)
		if err != nil || cmd == root {
			t.Errorf("%q: no such command: %v", command, err)
			continue
		}
		if err := cmd.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
			continue
		} else if err != nil {
			t.Errorf("%q: %v", command, err)
			continue
		}
		if len(cmd.Flags().Args()) == 0 && cmd.HasSubCommands() {
			continue // it is only spoken of
		}
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil && len(cmd.Flags().Args()) > 0 {
			t.Errorf("%q: %v", command, err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if len(rest) > 0 && strings.Contains(f.Usage, "required") && !f.Changed {
				t.Errorf("%q: --%s is required", command, f.Name)
			}
		})
	}
}

// The steps of a back-up and of both kinds of restores are those of the manual.
func TestManualRestore(t *testing.T) {
	t.Parallel()
	for name, bumped := range map[string]bool{"bumped": true, "rewound": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &restore{server: testetcd.Start(t)}
			r.world = worldOn(t, r.server)
			r.do(bumped)
		})
	}
}

type restore struct {
	*world
	server   *testetcd.Server
	snapshot testetcd.Snapshot
	fence    int64 // the greatest before the restore
}

func (r *restore) do(bumped bool) {
	lines := steps(r.T, "## Back-up and restore")
	client := r.client("api-7")
	r.noErr(r.claim(client, "k").Release(r.Context()))
	r.types(0, "doctor")
	for i, line := range lines {
		if !bumped && strings.HasPrefix(line, "etcdutl") {
			line, lines = "etcdutl snapshot restore claims.db", nil // as somebody did who did not read on
		}
		r.step(line)
		if i == 0 {
			for range 30 { // what the snapshot does not have
				claim := r.claim(client, "k")
				r.fence = claim.Fence()
				r.noErr(claim.Release(r.Context()))
			}
			r.types(0, "doctor")
		}
		if lines == nil {
			break
		}
	}
	if !bumped {
		for _, line := range steps(r.T, "### etcd was rewound") {
			r.step(line)
		}
	}
	if claim := r.claim(r.client("api-8"), "k"); claim.Fence() <= r.fence {
		r.Errorf("fence %d after %d", claim.Fence(), r.fence)
	}
}

// step does one line of the manual.
func (r *restore) step(line string) {
	r.Helper()
	args := words(line)
	switch {
	case strings.HasPrefix(line, "etcdctl snapshot save "):
		r.snapshot = testetcd.TakeSnapshot(r.T, r.etcd)
	case strings.HasPrefix(line, "etcdutl snapshot restore "):
		bump := uint64(0)
		for i, a := range args {
			if a == "--bump-revision" {
				n, err := strconv.ParseUint(args[i+1], 10, 64)
				r.noErr(err)
				bump = n
			}
		}
		r.server.Restore(r.T, r.snapshot, bump)
	case args[0] == "claimctl":
		code := 0
		if _, want, ok := strings.Cut(line, "exits with "); ok {
			_, err := fmt.Sscan(strings.TrimRight(want, ",:"), &code)
			r.noErr(err)
		}
		for i, a := range args {
			if a == "8812" {
				args[i] = fmt.Sprint(r.fence)
			}
		}
		r.types(code, args[1:]...)
	default:
		r.Fatalf("the test does not know %q", line)
	}
}
