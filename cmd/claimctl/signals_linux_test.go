package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func init() { commands["print-signals"] = printSignals }

// printSignals is a command that writes the number of each signal into a file, and exits
// with 7 at TERM.
func printSignals(file string) {
	signals := make(chan os.Signal, 128)
	signal.Notify(signals, passedOn...)
	f, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(f, "ready")
	for sig := range signals {
		_, _ = fmt.Fprintln(f, signalNumber(sig))
		if sig == syscall.SIGTERM {
			os.Exit(7)
		}
	}
}

const realTime = syscall.Signal(40)

// Each signal reaches a command that runs.
func TestSignalsWhileRunning(t *testing.T) {
	t.Parallel()
	w, file := newWorld(t), filepath.Join(t.TempDir(), "signals")
	p := w.start(program(t), "run", "k", "--", program(t), "print-signals", file)
	appears(t, file)
	want := []syscall.Signal{syscall.SIGWINCH, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGABRT, realTime}
	for n := syscall.Signal(1); n <= lastSignal; n++ {
		reserved := n >= 32 && n <= 34 // for C libraries: Go's runtime hands them to nobody
		if !slices.Contains(kept, n) && !reserved && n != syscall.SIGTERM && !slices.Contains(want, n) {
			want = append(want, n)
		}
	}
	for _, sig := range want {
		p.signal(sig)
		eventually(t, fmt.Sprintf("signal %d arrives", sig), func() bool {
			return slices.Contains(strings.Fields(appears(t, file)), fmt.Sprint(int(sig)))
		})
	}
	p.signal(syscall.SIGTERM)
	p.ends(7)
	w.isFree("k")
}

// While claimctl waits there is no command yet: signals that ask no process to end do nothing.
func TestSignalsWhileWaiting(t *testing.T) {
	t.Parallel()
	w, program := newWorld(t), program(t)
	claim := w.claim(w.client("api-7"), "k")
	waits := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " wait"), func() bool { return len(as[explanation](w, "explain", "k").Waiting) == n })
	}
	p := w.start(program, "run", "k", "--wait", "forever", "--", "echo", "my turn")
	waits(1)
	for _, sig := range []syscall.Signal{syscall.SIGWINCH, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGCONT, realTime} {
		p.signal(sig)
	}
	aborted := w.start(program, "run", "k", "--wait", "forever", "--", "true")
	waits(2)
	aborted.signal(syscall.SIGABRT)
	aborted.ends(exitSignal + int(syscall.SIGABRT))
	waits(1)
	w.noErr(claim.Release(t.Context()))
	if r := p.ends(0); r.out != "my turn\n" {
		t.Errorf("%+v", r)
	}
}

// A command that is stopped continues with CONT, and hears of the end of its claim.
func TestSignalsToStoppedCommand(t *testing.T) {
	t.Parallel()
	w, file := newWorld(t), filepath.Join(t.TempDir(), "pid")
	p := w.start(program(t), "run", "k", "--max-hold", "8s", "--grace", "3s", "--", "sh", "-c", "echo $$ > "+file+"; exec sleep 60")
	pid := strings.TrimSpace(appears(t, file))
	is := func(state string) {
		t.Helper()
		eventually(t, "its state is "+state, func() bool {
			b, err := os.ReadFile("/proc/" + pid + "/stat")
			return err == nil && strings.HasPrefix(string(b[strings.LastIndexByte(string(b), ')')+1:]), " "+state)
		})
	}
	is("S")
	p.signal(syscall.SIGTSTP)
	is("T")
	p.signal(syscall.SIGCONT)
	is("S")
	p.signal(syscall.SIGTSTP)
	is("T")
	p.ends(exitLost) // and not exitKilled
	w.isFree("k")
}
