//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
)

// A watch --until that a signal ends does not exit as if the condition were true. A plain watch
// ends well: nothing else ends it.
func TestUntilInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.claim(w.client("a"), "k")
	for _, c := range []struct {
		sig  syscall.Signal
		code int
		args []string
	}{
		{syscall.SIGTERM, exitSignal + int(syscall.SIGTERM), []string{"--until", "free", "k"}},
		{syscall.SIGINT, exitSignal + int(syscall.SIGINT), []string{"--until", "held", "other"}},
		{syscall.SIGTERM, 0, nil},
	} {
		cmd := exec.Command(program(t), append(append(slices.Clone(w.flags), "watch", "--debug"), c.args...)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		log, err := cmd.StderrPipe()
		w.noErr(err)
		w.noErr(cmd.Start())
		lines := bufio.NewScanner(log)
		for requests := 0; requests < 2 && lines.Scan(); { // the second one is of the watch
			if strings.Contains(lines.Text(), "KV/Txn") {
				requests++
			}
		}
		w.noErr(cmd.Process.Signal(c.sig))
		for lines.Scan() {
		}
		_ = cmd.Wait() // its code is looked at
		if code := cmd.ProcessState.ExitCode(); code != c.code {
			t.Errorf("%q at %v: exit code %d, want %d", c.args, c.sig, code, c.code)
		}
	}
}

// A key with slots, or one that callers share, is held while any of them holds it. Its record,
// which stays, is no holder.
func TestUntilOfManyHolders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.client("a"), w.client("b")
	is := func(key, state, other string) {
		t.Helper()
		w.ok("watch", "--until", state, "--timeout", "30s", key)
		w.fails(exitTimeout, "not "+other, "watch", "--until", other, "--timeout", "300ms", key)
	}
	for key, kind := range map[string]etcdclaims.AcquireOption{"slotted": etcdclaims.Slots(2), "shared": etcdclaims.Shared()} {
		first, second := w.claim(a, key, kind), w.claim(b, key, kind)
		w.noErr(first.Release(t.Context()))
		is(key, "held", "free")
		w.noErr(second.Release(t.Context()))
		is(key, "free", "held")
	}
	is(etcdclaims.SlotKey("slotted", 0), "free", "held")
}
