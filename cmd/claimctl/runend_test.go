//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
)

// A reload by HUP is no request to end: elect stands again when the claim is lost later, and an
// attempt that fails later has failed.
func TestReloadIsNoEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const loop = `while :; do sleep 0.05; done`
	terms, reloaded := filepath.Join(w.dir(), "terms"), filepath.Join(w.dir(), "reloaded")
	elect := w.start(program(t), "elect", "k", "--", "sh", "-c", `trap 'echo got > `+reloaded+`' HUP; echo $CLAIM_FENCE >> `+terms+`; [ $(wc -l < `+terms+`) -ge 2 ] && exit 4; `+loop)
	appears(t, terms)
	elect.signal(syscall.SIGHUP)
	appears(t, reloaded)
	w.ok("release", "k", "--fence", fmt.Sprint(as[explanation](w, "explain", "k").Fence))
	elect.ends(4)

	begun, again := filepath.Join(w.dir(), "begun"), filepath.Join(w.dir(), "again")
	once := w.start(program(t), "run", "--once", "work", "--", "sh", "-c", `trap 'exit 3' USR1; trap 'echo got > `+again+`' HUP; echo x > `+begun+`; `+loop)
	appears(t, begun)
	once.signal(syscall.SIGHUP)
	appears(t, again)
	once.signal(syscall.SIGUSR1)
	once.ends(3)
	if v := as[workView](w, "work", "show", "work"); v.State != "failed" {
		t.Errorf("the command exited with 3, and the work is %+v", v)
	}
}

// A command that dies of HUP, as when its terminal is closed, has not failed.
func TestHangupIsNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begun := filepath.Join(w.dir(), "begun")
	p := w.start(program(t), "run", "--once", "work", "--", "sh", "-c", `echo x > `+begun+`; while :; do sleep 0.05; done`)
	appears(t, begun)
	p.signal(syscall.SIGHUP)
	p.ends(exitSignal + int(syscall.SIGHUP))
	if record, ok, err := testwork.Of(w.client("check")).Record(t.Context(), "work"); err != nil || ok && record.State != work.StateFree {
		t.Errorf("%+v, %v", record, err)
	}
}

// hasStopped reports whether all threads of a process are stopped. Those that the signal has not
// reached yet run on for a while.
func hasStopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(name string) bool {
		stat, err := os.ReadFile(name)
		return err != nil || !bytes.Contains(stat, []byte(") T "))
	})
}

// A command that ended by itself while claimctl was stopped was not killed, and elect does not
// run it again if it exited with 0.
func TestEndedWhileStopped(t *testing.T) {
	t.Parallel()
	if !canAwaitEnd {
		t.Skip("only on Linux claimctl can see this")
	}
	w := worldOn(t, testetcd.Start(t))
	begun := map[string]*process{}
	terms := func(verb string) string { return filepath.Join(w.dir(), verb) }
	stopped := func(verb string) string { return filepath.Join(w.dir(), verb+"-stopped") }
	for _, verb := range []string{"run", "elect"} {
		p := w.start(program(t), verb, "k"+verb, "--ttl", "5s", "--", "sh", "-c", `echo $CLAIM_FENCE >> `+terms(verb)+`; until [ -e `+stopped(verb)+` ]; do sleep 0.05; done`)
		appears(t, terms(verb))
		p.signal(syscall.SIGSTOP)
		eventually(t, "claimctl is stopped", func() bool { return hasStopped(p.cmd.Process.Pid) })
		w.noErr(os.WriteFile(stopped(verb), nil, 0o600)) // the command ends after claimctl was stopped
		begun[verb] = p
	}
	time.Sleep(8 * time.Second)
	for verb, p := range begun {
		p.signal(syscall.SIGCONT)
		p.ends(exitLost)
		if n := strings.Count(appears(t, terms(verb)), "\n"); n != 1 {
			t.Errorf("%s ran the command %d times", verb, n)
		}
	}
}
