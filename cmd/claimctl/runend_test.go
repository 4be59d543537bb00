//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
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

// A leader that gets the key while it is stopped, and loses it before it notices, stands again.
func TestElectLostInLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.claim(w.client("first"), "k")
	terms := filepath.Join(w.dir(), "terms")
	elect := w.start(program(t), "elect", "--ttl", "5s", "k", "--", "sh", "-c", `echo x > `+terms+`; exit 4`)
	key := func() explanation { return as[explanation](w, "explain", "k") }
	eventually(t, "it waits", func() bool { return len(key().Waiting) == 1 })
	elect.signal(syscall.SIGSTOP)
	w.noErr(first.Release(t.Context()))
	eventually(t, "its lease ends", func() bool { x := w.ctl("explain", "k", "-o", "json"); return strings.Contains(x.out, `"held": false`) })
	elect.signal(syscall.SIGCONT)
	elect.ends(4)
}

// elect stands again after each loss, and only then.
func TestElectStandsAgain(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("acquire: %w", &etcdclaims.LostError{Reason: etcdclaims.ReasonExpired})
	for name, c := range map[string]struct {
		h    *holding
		err  error
		want bool
	}{
		"lost before it ran":   {nil, lost, true},
		"not acquired":         {nil, etcdclaims.ErrHeld, false},
		"interrupted in line":  {nil, &exitError{exitSignal + 15, errors.New("TERM before the command ran")}, false},
		"lost while it ran":    {&holding{over: true}, lost, true},
		"lost and interrupted": {&holding{over: true, interrupted: syscall.SIGTERM}, lost, false},
		"ended by itself":      {&holding{}, nil, false},
	} {
		if got := lostOnly(c.h, c.err); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A command does not run under an etcd that is behind a fence, as after a restore.
func TestRunOnRewound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fence := w.claim(w.client("a"), "other").Fence()
	w.ok("run", "--fence", fmt.Sprint(fence), "k", "--", "true")
	for _, verb := range []string{"run", "elect"} {
		w.fails(exitFailure, "without --bump-revision", verb, "--fence", fmt.Sprint(fence+1_000_000), "k", "--", "true")
		w.fails(exitUsage, "--fence must not be negative", verb, "--fence", "-1", "k", "--", "true")
	}
	w.isFree("k")
}

// A restart of etcd, which is shorter than the lease, ends nothing.
func TestRunOutlivesRestart(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t)
	w := worldOn(t, server)
	begun, end := filepath.Join(w.dir(), "begun"), filepath.Join(w.dir(), "end")
	p := w.start(program(t), "run", "k", "--ttl", etcdclaims.MinTTL.String(), "--", "sh", "-c",
		fmt.Sprintf("echo $CLAIM_FENCE > %s; while [ ! -e %s ]; do sleep 0.05; done", begun, end))
	fence := strings.TrimSpace(appears(t, begun))
	server.Restart(t)
	eventually(t, "the claim is renewed", func() bool {
		r := w.ctl("explain", "k")
		return r.code == 0 && strings.Contains(r.out, "Fence:     "+fence) && !strings.Contains(r.out, "overdue")
	})
	w.noErr(os.WriteFile(end, nil, 0o600))
	p.ends(0)
	w.isFree("k")
}
