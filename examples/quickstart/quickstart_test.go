//go:build unix

package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

const files = 300

func TestQuickstart(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	bin := testetcd.Program(t, "quickstart")
	t.Run("OK", func(t *testing.T) {
		t.Parallel()
		out, err := command(t, bin, "-root", tree(t, files)).CombinedOutput()
		checkRun(t, string(out), err)
	})
	t.Run("OK with endpoints", func(t *testing.T) {
		t.Parallel()
		server := testetcd.Shared(t)
		endpoints := strings.Join(server.Endpoints(), ",")
		out, err := command(t, bin, "-root", tree(t, files), "-endpoints", endpoints).CombinedOutput()
		checkRun(t, string(out), err)
		checkEmpty(t, server)
	})
	t.Run("fails", func(t *testing.T) {
		t.Parallel()
		f := func(want string, args ...string) {
			t.Helper()
			out, err := command(t, bin, args...).CombinedOutput()
			if err == nil {
				t.Errorf("%q: exit 0", args)
			}
			if !strings.Contains(string(out), want) {
				t.Errorf("%q printed:\n%s\nwant it to say %q", args, out, want)
			}
		}
		f("2 .go files", "-root", tree(t, 2))
		f("not done after 2s", "-root", tree(t, files), "-timeout", "2s")
		f("negative", "-pace", "-1")
		f("unexpected argument", "fast")
	})
}

// checkRun checks that a run went well, and that it shows what it is for.
func checkRun(t *testing.T, out string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	lines, words, size := treeCounts(files)
	counts := fmt.Sprintf("%d lines, %d words, %d bytes", lines, words, size)
	for _, want := range []string{
		`worker-1 is killed, holding \S+ \(fence \d+\)`,
		`worker-2 is frozen, about to write \S+ \(fence \d+\)`,
		`worker-\d takes over \S+ from worker-1: fence \d+ after \d+`,
		`worker-\d takes over \S+ from worker-2: fence \d+ after \d+`,
		`worker-2 is resumed`,
		`worker-2 writes \S+ late: refused by etcd: .*stale`,
		`worker-2 cannot complete \S+: .*lost`,
		`three processes: ` + counts,
		`one process: +` + counts,
		fmt.Sprintf(`%[1]d files, %[1]d results; [1-9]\d* taken over; 1 late write refused`, files),
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// checkEmpty checks that the program leaves nothing in an etcd not its own.
func checkEmpty(t *testing.T, server *testetcd.Server) {
	t.Helper()
	resp, err := server.Client(t).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		t.Errorf("left over: %s", kv.Key)
	}
}

func command(t *testing.T, bin string, args ...string) *exec.Cmd {
	t.Helper()
	// Each run has a file of its own, so that its processes can be told from
	// others.
	own := filepath.Join(t.TempDir(), "quickstart")
	if err := os.Link(bin, own); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), own, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // where its etcd lies
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// tree makes a directory with n files to count, and one that is not.
func tree(t *testing.T, n int) string {
	t.Helper()
	root := t.TempDir()
	write := func(name string, text []byte) {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		write(fmt.Sprintf("dir%02d/file%03d.go", i%17, i), text(i))
	}
	write("dir00/README", []byte("not Go\n"))
	return root
}

// text is that of the i-th file: i lines of three words.
func text(i int) []byte { return bytes.Repeat([]byte("one\ttwo  three\n"), i) }

func treeCounts(n int) (lines, words, size int) {
	for i := range n {
		lines, words, size = lines+i, words+3*i, size+len(text(i))
	}
	return lines, words, size
}
