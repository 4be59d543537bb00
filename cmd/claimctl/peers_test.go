//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// What etcdctl's tests want of "etcdctl lock" (tests/e2e/ctl_v3_lock_test.go,
// tests/common/lock_test.go) and Consul's of "consul lock"
// (command/lock/lock_test.go), wanted of claimctl run. Consul's semaphores are slots here.
func TestPeers(t *testing.T) {
	t.Parallel()
	program := program(t)
	for name, test := range map[string]func(w *world, start func(args ...string) *process, dir string){
		"etcdctl TestCtlV3Lock":                           peerLock,
		"etcdctl TestLockWithCmd":                         peerCommand,
		"consul TestLockCommand_noTabs":                   peerHelp,
		"consul TestLockCommand_BadArgs":                  peerBadArgs,
		"consul TestLockCommand, TestLockCommand_NoShell": peerTouch,
		"consul TestLockCommand_TryLock":                  peerTry,
		"consul TestLockCommand_TrySemaphore":             peerTrySemaphore,
		"consul TestLockCommand_ChildExitCode":            peerExit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test(w, func(args ...string) *process { w.Helper(); return w.start(program, args...) }, t.TempDir())
		})
	}
	t.Run("consul TestLockCommand_MonitorRetry_Lock_Default and _Arg", func(t *testing.T) {
		t.Parallel()
		server := testetcd.Start(t)
		w := worldOn(t, server)
		peerRetry(w, func(args ...string) *process { w.Helper(); return w.start(program, args...) }, server)
	})
	t.Run("consul TestLockCommand_MonitorRetry_Semaphore_Default and _Arg", func(t *testing.T) {
		t.Parallel()
		server := testetcd.Start(t)
		w := worldOn(t, server)
		peerRetry(w, func(args ...string) *process { w.Helper(); return w.start(program, args...) }, server, "--slots", "3")
	})
}

// peerLock: a holder, one that waits and is interrupted, and one that waits and
// gets the key when the holder is interrupted.
func peerLock(w *world, start func(args ...string) *process, dir string) {
	waits := func(n int) {
		w.Helper()
		eventually(w.T, fmt.Sprint(n, " wait"), func() bool { return len(as[explanation](w, "explain", "a").Waiting) == n })
	}
	command := func(file string) []string {
		return []string{"run", "a", "--wait", "forever", "--", "sh", "-c", "echo $CLAIM_FENCE > " + filepath.Join(dir, file) + "; exec sleep 60"}
	}
	holder := start(command("holder")...)
	first := appears(w.T, filepath.Join(dir, "holder"))
	blocked := start(command("blocked")...)
	waits(1)
	acquires := start(command("acquires")...)
	waits(2)
	blocked.signal(os.Interrupt)
	blocked.ends(128 + int(syscall.SIGINT))
	waits(1)
	holder.signal(os.Interrupt)
	holder.ends(128 + int(syscall.SIGINT))
	if second := appears(w.T, filepath.Join(dir, "acquires")); second == first {
		w.Errorf("the same fence %s for two owners", first)
	}
	acquires.signal(syscall.SIGTERM)
	acquires.ends(128 + int(syscall.SIGTERM))
	if _, err := os.Stat(filepath.Join(dir, "blocked")); err == nil {
		w.Error("the command that was blocked ran")
	}
	w.isFree("a")
}

// peerCommand: the output and the exit code are those of the command.
func peerCommand(w *world, start func(args ...string) *process, _ string) {
	if r := start("run", "a", "--", "echo", "mutex held").ends(0); r.out != "mutex held\n" {
		w.Errorf("%q", r.out)
	}
	start("run", "a", "--", "sh", "-c", "exit 3").ends(3)
}

func peerHelp(w *world, start func(args ...string) *process, _ string) {
	if r := start("run", "--help").ends(0); strings.Contains(r.out, "\t") {
		w.Errorf("the help has tabs: %q", r.out)
	}
}

func peerBadArgs(_ *world, start func(args ...string) *process, _ string) {
	for _, args := range [][]string{
		{"run", "--wait=blah", "test/prefix", "--", "date"},
		{"run", "--wait=-10s", "test/prefix", "--", "date"},
		{"run", "--command-timeout=blah", "test/prefix", "--", "date"},
		{"run", "--grace=-5s", "test/prefix", "--", "date"},
	} {
		start(args...).ends(exitUsage)
	}
}

// peerTouch: the command runs, and without a shell, whatever its arguments are.
func peerTouch(w *world, start func(args ...string) *process, dir string) {
	file := filepath.Join(dir, "a file; touch $HOME")
	start("run", "test/prefix", "--", "touch", file).ends(0)
	if _, err := os.Stat(file); err != nil {
		w.Error(err)
	}
}

// peerTry: a bounded wait gets a key that is free or becomes free, and no other.
func peerTry(w *world, start func(args ...string) *process, dir string) {
	file := filepath.Join(dir, "file")
	start("run", "--wait=10s", "test/prefix", "--", "touch", file).ends(0)
	if _, err := os.Stat(file); err != nil {
		w.Error(err)
	}
	claim := w.claim(w.client("other"), "test/prefix")
	start("run", "--wait=300ms", "test/prefix", "--", "touch", file+"2").ends(exitTimeout)
	if _, err := os.Stat(file + "2"); err == nil {
		w.Error("the command ran without the key")
	}
	w.noErr(claim.Release(w.Context()))
}

// peerTrySemaphore: a bounded wait gets one of three slots, and no fourth.
func peerTrySemaphore(w *world, start func(args ...string) *process, dir string) {
	file := filepath.Join(dir, "file")
	start("run", "--slots=3", "--wait=10s", "test/prefix", "--", "touch", file).ends(0)
	if _, err := os.Stat(file); err != nil {
		w.Error(err)
	}
	other := w.client("other")
	var held []*etcdclaims.Claim
	for range 3 {
		held = append(held, w.claim(other, "test/prefix", etcdclaims.Slots(3)))
	}
	start("run", "--slots=3", "--wait=300ms", "test/prefix", "--", "touch", file+"2").ends(exitTimeout)
	if _, err := os.Stat(file + "2"); err == nil {
		w.Error("the command ran without a slot")
	}
	w.noErr(held[1].Release(w.Context()))
	start("run", "--slots=3", "--wait=10s", "test/prefix", "--", "touch", file+"2").ends(0)
}

// peerExit: Consul passes codes on with a flag only, and as 2. Claimctl always
// does, as they are; a command that does not exist has the code of shells.
func peerExit(_ *world, start func(args ...string) *process, _ string) {
	start("run", "test/prefix", "--", "sh", "-c", "exit 0").ends(0)
	start("run", "test/prefix", "--", "sh", "-c", "exit 1").ends(1)
	start("run", "test/prefix", "--", "no-such-command", "1").ends(exitNotFound)
}

// peerRetry: a short outage ends nothing. Consul retries three times, claimctl until
// the claim's deadline.
func peerRetry(w *world, start func(args ...string) *process, server *testetcd.Server, flags ...string) {
	dir := w.TempDir()
	begun, end := filepath.Join(dir, "begun"), filepath.Join(dir, "end")
	p := start(append(append([]string{"run", "test/prefix", "--ttl", etcdclaims.MinTTL.String()}, flags...), "--", "sh", "-c",
		fmt.Sprintf("echo $CLAIM_FENCE $CLAIM_KEY > %s; while [ ! -e %s ]; do sleep 0.05; done", begun, end))...)
	fence, key, _ := strings.Cut(strings.TrimSpace(appears(w.T, begun)), " ")
	server.Restart(w.T)
	eventually(w.T, "the claim is renewed", func() bool {
		r := w.ctl("explain", key)
		return r.code == 0 && strings.Contains(r.out, "Fence:     "+fence) && !strings.Contains(r.out, "overdue")
	})
	w.noErr(os.WriteFile(end, nil, 0o600))
	p.ends(0)
	w.isFree(key)
}
