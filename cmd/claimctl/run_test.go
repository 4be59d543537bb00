//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
)

// process is claimctl in a process of its own.
type process struct {
	*testing.T
	cmd      *exec.Cmd
	out, err bytes.Buffer
	done     chan struct{}
}

// start runs the program; "DIR" in arguments is the test's own directory.
func (w *world) start(program string, args ...string) *process {
	w.Helper()
	p := &process{T: w.T, done: make(chan struct{})}
	p.cmd = exec.Command(program, append(slices.Clone(w.flags), args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = 5 * time.Second // for what it might leave behind
	w.noErr(p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its code is looked at
	}()
	w.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// ends waits for the end of the process, and wants the exit code.
func (p *process) ends(code int) result {
	p.Helper()
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		p.Fatalf("it did not end: %s%s", p.out.String(), p.err.String())
	}
	r := result{p.out.String(), p.err.String(), p.cmd.ProcessState.ExitCode()}
	if r.code != code {
		p.Fatalf("exit code %d, want %d: %s%s", r.code, code, r.out, r.err)
	}
	return r
}

func (p *process) signal(sig os.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.Fatal(err)
	}
}

// appears waits for a file that the command writes.
func appears(t *testing.T, file string) string {
	t.Helper()
	var b []byte
	eventually(t, file+" appears", func() bool {
		var err error
		b, err = os.ReadFile(file)
		return err == nil && bytes.HasSuffix(b, []byte("\n"))
	})
	return string(b)
}

func TestRun(t *testing.T) {
	t.Parallel()
	program := program(t)
	for name, test := range map[string]func(w *world, start func(args ...string) *process, dir string){
		"environment":       runEnvironment,
		"exit codes":        runExitCodes,
		"slots":             runSlots,
		"shared":            runShared,
		"usage":             runUsage,
		"busy and waiting":  runBusy,
		"signals":           runSignals,
		"forced release":    runForced,
		"max hold":          runMaxHold,
		"once":              runOnce,
		"at most once":      runAtMostOnce,
		"what stays behind": runLeftBehind,
		"killed":            runKilled,
		"elect":             runElect,
		"elect, ended":      runElectEnded,
		"elect, preferred":  runElectPreferred,
		"max hold, told":    runMaxHoldTold,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test(w, func(args ...string) *process { w.Helper(); return w.start(program, args...) }, t.TempDir())
		})
	}
	t.Run("etcd cut off", func(t *testing.T) {
		t.Parallel()
		runCutOff(t, program)
	})
}

func runSlots(w *world, start func(args ...string) *process, _ string) {
	held, err := w.client("api-7").TryAcquire(w.Context(), "k", etcdclaims.Slots(2))
	w.noErr(err)
	out := start("run", "k", "--slots", "2", "--", "sh", "-c", `echo "$CLAIM_SLOT $CLAIM_KEY"`).ends(0).out
	if want := fmt.Sprintf("%d %s\n", 1-held.Slot(), etcdclaims.SlotKey("k", 1-held.Slot())); out != want {
		w.Errorf("the command sees %q, want %q", out, want)
	}
	start("run", "k", "--slots", "3", "--", "true").ends(exitFailure)
	start("run", "k", "--slots", "1", "--once", "--", "true").ends(exitUsage)
}

func runShared(w *world, start func(args ...string) *process, _ string) {
	c := w.client("api-7")
	held, err := c.TryAcquire(w.Context(), "k", etcdclaims.Shared())
	w.noErr(err)
	out := start("run", "k", "--shared", "--", "sh", "-c", `echo "$FENCING_TOKEN"`).ends(0).out
	if token, err := fencing.Parse(strings.TrimSpace(out)); err != nil || token != held.Token() {
		w.Errorf("the command sees %q, %v, want %v", out, err, held.Token())
	}
	start("run", "k", "--", "true").ends(exitBusy)
	w.noErr(held.Release(w.Context()))
	w.isFree("k")
	start("run", "k", "--shared", "--slots", "2", "--", "true").ends(exitUsage)
	start("run", "k", "--shared", "--once", "--", "true").ends(exitUsage)
}

func runEnvironment(w *world, start func(args ...string) *process, _ string) {
	out := start("run", "k", "--note", "hello", "--", "sh", "-c", `echo "$FENCING_TOKEN $CLAIM_KEY $CLAIM_FENCE $CLAIM_ID $CLAIM_OWNER $CLAIM_DEADLINE"; ls /proc/self >/dev/null`).ends(0).out
	fields := strings.Fields(out)
	if len(fields) != 6 || fields[1] != "k" || fields[4] != "operator" {
		w.Fatalf("the command sees %q", out)
	}
	if deadline, err := time.Parse(time.RFC3339Nano, fields[5]); err != nil || time.Until(deadline) < time.Second || time.Until(deadline) > etcdclaims.DefaultTTL {
		w.Errorf("deadline %v, %v", deadline, err)
	}
	token, err := fencing.Parse(fields[0])
	if err != nil || token.Key != "k" || fmt.Sprint(token.Fence) != fields[2] {
		w.Errorf("token %v, %v", token, err)
	}
	w.isFree("k")
	h := as[historyView](w, "history", "k")
	if len(h.Terms) != 1 || h.Terms[0].Claim != fields[3] || h.Terms[0].Ending != "released" {
		w.Errorf("%+v", h)
	}
}

func runExitCodes(w *world, start func(args ...string) *process, dir string) {
	start("run", "k", "--", "true").ends(0)
	start("run", "k", "--", "sh", "-c", "exit 3").ends(3)
	start("run", "k", "--", "sh", "-c", "kill -USR1 $$").ends(128 + int(syscall.SIGUSR1))
	start("run", "k", "--", "no-such-command").ends(exitNotFound)
	start("run", "k", "--", dir).ends(exitCannotRun)
	file := filepath.Join(dir, "empty")
	w.noErr(os.WriteFile(file, []byte("\x7fELF nonsense"), 0o755))
	start("run", "k", "--", file).ends(exitCannotRun)
	w.isFree("k")
	w.flags = []string{"--endpoints", "127.0.0.1:1", "--command-timeout", "300ms"}
	start("run", "k", "--", "true").ends(exitUnreachable)
	start("run", "k", "--wait", "300ms", "--", "true").ends(exitUnreachable)
	start("run", "k", "-E", "unreachable=0", "--", "true").ends(0)
}

func runUsage(_ *world, start func(args ...string) *process, _ string) {
	for _, args := range [][]string{
		{"run", "k"},
		{"run", "k", "true"},
		{"run", "--", "true"},
		{"run", "", "--", "true"},
		{"run", "k", "--wait", "long", "--", "true"},
		{"run", "k", "--signal", "NOPE", "--", "true"},
		{"run", "k", "-E", "odd=1", "--", "true"},
		{"run", "k", "-E", "busy=256", "--", "true"},
		{"run", "k", "--at-most-once", "--", "true"},
		{"run", "k", "--once", "--min-hold", "5s", "--", "true"},
		{"run", "k", "--ttl", "1s", "--", "true"},
		{"run", "k", "--ttl", "0", "--", "true"},
		{"elect", "k", "--ttl", "0", "--", "true"},
		{"run", "k", "--once", "--retention", "0", "--", "true"},
		{"run", "k", "--once", "--max-attempts", "0", "--", "true"},
		{"run", "k", "--retention", "1h", "--", "true"},
		{"run", "k", "--max-attempts", "3", "--", "true"},
		{"run", "k", "--grace", "1h", "--", "true"},
		{"run", "k", "--grace", "-1s", "--", "true"},
		{"run", "k", "--max-hold", "1s", "--", "true"},
		{"elect", "k"},
		{"elect", "k", "--prefer", "-1", "--", "true"},
		{"elect", "k", "--prefer", "1", "--note", "n", "--", "true"},
	} {
		start(args...).ends(exitUsage)
	}
}

func runBusy(w *world, start func(args ...string) *process, _ string) {
	claim := w.claim(w.client("api-7"), "k")
	if r := start("run", "k", "--", "true").ends(exitBusy); !strings.Contains(r.err, "held by api-7") {
		w.Errorf("it says %q", r.err)
	}
	start("run", "k", "-E", "busy=0", "--", "true").ends(0)
	if r := start("run", "k", "--wait", "3s", "--", "true").ends(exitTimeout); !strings.Contains(r.err, ": still held by api-7") || !strings.Contains(r.err, ", after 3s\n") {
		w.Errorf("it says %q", r.err)
	}
	interrupted := start("run", "k", "--wait", "forever", "--", "true")
	eventually(w.T, "it waits", func() bool { return len(as[explanation](w, "explain", "k").Waiting) == 1 })
	interrupted.signal(syscall.SIGTERM)
	interrupted.ends(128 + int(syscall.SIGTERM))
	waiting := start("run", "k", "--wait", "1m", "--", "echo", "my turn")
	eventually(w.T, "it waits", func() bool { return len(as[explanation](w, "explain", "k").Waiting) == 1 })
	w.noErr(claim.Release(w.Context()))
	if r := waiting.ends(0); r.out != "my turn\n" {
		w.Errorf("it says %q", r.out)
	}
	start("run", "k", "--min-hold", "10s", "--", "true").ends(0)
	start("run", "k", "--", "true").ends(exitBusy)
}

func runSignals(w *world, start func(args ...string) *process, dir string) {
	file := filepath.Join(dir, "pid")
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		_ = os.Remove(file)
		name := map[syscall.Signal]string{syscall.SIGUSR1: "USR1", syscall.SIGHUP: "HUP", syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT", syscall.SIGTERM: "TERM"}[sig]
		p := start("run", "k", "--", "sh", "-c", fmt.Sprintf(`trap 'echo got; exit 7' %s; echo $$ > %s; while :; do sleep 0.05; done`, name, file))
		appears(w.T, file)
		p.signal(sig)
		if r := p.ends(7); r.out != "got\n" {
			w.Errorf("%s: %q", name, r.out)
		}
		w.isFree("k")
	}
}

func runForced(w *world, start func(args ...string) *process, dir string) {
	file := filepath.Join(dir, "pid")
	p := start("run", "k", "--", "sh", "-c", fmt.Sprintf(`trap '' TERM; echo $$ > %s; while :; do sleep 0.05; done`, file))
	appears(w.T, file)
	w.ok("release", "k", "--fence", fmt.Sprint(as[explanation](w, "explain", "k").Fence), "--reason", "stuck job")
	if r := p.ends(exitKilled); !strings.Contains(r.err, "stuck job") {
		w.Errorf("it says %q", r.err)
	}
}

func runMaxHold(w *world, start func(args ...string) *process, _ string) {
	begun := time.Now()
	start("run", "k", "--max-hold", "4s", "--", "sleep", "60").ends(exitLost)
	if took := time.Since(begun); took > 8*time.Second {
		w.Errorf("it took %v", took)
	}
	start("run", "k", "--max-hold", "4s", "--", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done").ends(exitKilled)
	// At once, unless the machine is so busy that the command died after its claim's end.
	eventually(w.T, "it is free", func() bool { return !as[explanation](w, "explain", "k").Held })
}

func runOnce(w *world, start func(args ...string) *process, dir string) {
	count := filepath.Join(dir, "count")
	run := func() *process {
		return start("run", "invoice/1", "--once", "-E", "done=9", "--", "sh", "-c", `echo $CLAIM_ATTEMPT >> `+count)
	}
	start("run", "invoice/1", "--once", "--", "sh", "-c", "exit 5").ends(5)
	record, ok, err := testwork.Of(w.client("check")).Record(w.Context(), "invoice/1")
	if err != nil || !ok || record.State != work.StateFailed || !strings.Contains(record.Error, "exit status 5") {
		w.Fatalf("%+v, %v", record, err)
	}
	eventually(w.T, "it ran again", func() bool {
		p := run()
		<-p.done
		if code := p.cmd.ProcessState.ExitCode(); code != 0 && code != exitBusy && code != 9 {
			w.Fatalf("exit code %d: %s", code, p.err.String())
		}
		return p.cmd.ProcessState.ExitCode() == 0
	})
	run().ends(9)
	start("run", "invoice/1", "--once", "--", "false").ends(0)
	if got := appears(w.T, count); got != "2\n" {
		w.Errorf("attempts: %q", got)
	}
	// A signal to claimctl is not a failure of the work.
	file := filepath.Join(dir, "pid")
	p := start("run", "invoice/2", "--once", "--", "sh", "-c", "echo $$ > "+file+"; exec sleep 60")
	appears(w.T, file)
	p.signal(syscall.SIGTERM)
	p.ends(128 + int(syscall.SIGTERM))
	start("run", "invoice/2", "--once", "--", "true").ends(0)
}

func runAtMostOnce(w *world, start func(args ...string) *process, _ string) {
	start("run", "k", "--once", "--at-most-once", "--", "false").ends(1)
	if r := start("run", "k", "--once", "--at-most-once", "--", "true").ends(1); !strings.Contains(r.err, "dead") {
		w.Errorf("it says %q", r.err)
	}
}

// runLeftBehind wants that no process of the command works on when the key is free.
func runLeftBehind(w *world, start func(args ...string) *process, dir string) {
	file := filepath.Join(dir, "pid")
	start("run", "k", "--", "sh", "-c", "(trap '' HUP TERM; echo begun > "+file+"; sleep 1; sleep 60) & while [ ! -s "+file+" ]; do sleep 0.01; done; echo $! > "+file).ends(0)
	w.gone(appears(w.T, file))
	w.isFree("k")
}

// gone waits for the death of a process; its parent may not look after it.
func (w *world) gone(pid string) {
	w.Helper()
	var n int
	_, err := fmt.Sscan(pid, &n)
	w.noErr(err)
	eventually(w.T, "process "+pid+" has ended", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n))
		return errors.Is(syscall.Kill(n, 0), syscall.ESRCH) || err == nil && bytes.Contains(status, []byte("State:\tZ"))
	})
}

// runKilled wants that the command dies with claimctl.
func runKilled(w *world, start func(args ...string) *process, dir string) {
	if !canAwaitEnd {
		w.Skip("only on Linux the command dies with claimctl")
	}
	file := filepath.Join(dir, "pid")
	p := start("run", "k", "--", "sh", "-c", "echo $$ > "+file+"; exec sleep 60")
	pid := appears(w.T, file)
	p.signal(syscall.SIGKILL)
	<-p.done
	w.gone(pid)
}

func runElect(w *world, start func(args ...string) *process, dir string) {
	file := filepath.Join(dir, "terms")
	p := start("elect", "k", "--", "sh", "-c", `echo $CLAIM_FENCE >> `+file+`; [ $(wc -l < `+file+`) -lt 2 ] && exec sleep 60; exit 4`)
	appears(w.T, file)
	w.ok("release", "k", "--fence", fmt.Sprint(as[explanation](w, "explain", "k").Fence))
	r := p.ends(4)
	if !strings.Contains(r.err, "waiting in line again") || strings.Count(appears(w.T, file), "\n") != 2 {
		w.Errorf("it says %q", r.err)
	}
	// Also where --exit-code makes a loss a success.
	w.noErr(os.Remove(file))
	p = start("elect", "k", "-E", "lost=0", "-E", "killed=0", "--", "sh", "-c", `echo $CLAIM_FENCE >> `+file+`; [ $(wc -l < `+file+`) -lt 2 ] && exec sleep 60; exit 4`)
	appears(w.T, file)
	w.ok("release", "k", "--fence", fmt.Sprint(as[explanation](w, "explain", "k").Fence))
	p.ends(4)
}

// runElectPreferred wants that a leader that ends hands over to the preferred process in line.
func runElectPreferred(w *world, start func(args ...string) *process, dir string) {
	first, end, terms := filepath.Join(dir, "first"), filepath.Join(dir, "end"), filepath.Join(dir, "terms")
	p := start("elect", "k", "--prefer", "0", "--", "sh", "-c", `echo > `+first+`; while [ ! -e `+end+` ]; do sleep 0.05; done; exit 3`)
	appears(w.T, first)
	var line []*process
	for i, prefer := range []string{"0", "1"} {
		line = append(line, start("elect", "k", "--prefer", prefer, "--", "sh", "-c", `echo `+prefer+` >> `+terms+`; exit 4`))
		eventually(w.T, "another process is in line", func() bool { return len(as[explanation](w, "explain", "k").Waiting) == i+1 })
	}
	w.noErr(os.WriteFile(end, nil, 0o600))
	p.ends(3)
	for _, p := range line {
		p.ends(4)
	}
	if led := appears(w.T, terms); led != "1\n0\n" {
		w.Errorf("led, in this order: %q", led)
	}
}

// runElectEnded wants that a signal ends elect also if the claim is lost while the
// command shuts down.
func runElectEnded(w *world, start func(args ...string) *process, dir string) {
	terms, signaled := filepath.Join(dir, "terms"), filepath.Join(dir, "signaled")
	p := start("elect", "k", "--", "sh", "-c", `trap 'echo got > `+signaled+`' TERM; echo $CLAIM_FENCE >> `+terms+`; while :; do sleep 0.05; done`)
	appears(w.T, terms)
	p.signal(syscall.SIGTERM)
	appears(w.T, signaled)
	w.ok("release", "k", "--fence", fmt.Sprint(as[explanation](w, "explain", "k").Fence))
	p.ends(exitKilled)
	if got := appears(w.T, terms); strings.Count(got, "\n") != 1 {
		w.Errorf("terms: %q", got)
	}
}

// runMaxHoldTold wants that the command is told when its MaxHold ends.
func runMaxHoldTold(w *world, start func(args ...string) *process, _ string) {
	out := start("run", "k", "--ttl", "60s", "--max-hold", "20s", "--", "sh", "-c", `echo $CLAIM_DEADLINE`).ends(0).out
	at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(out))
	w.noErr(err)
	if time.Until(at) > 20*time.Second {
		w.Errorf("%s", out)
	}
}

// A signal during the acquisition leaves nothing claimed, whatever was under way.
func TestSignalWhileAcquiring(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claims := w.client("a")
	for i := range 60 {
		r := &runner{
			app: &app{connection: connection{commandTimeout: 5 * time.Second}, err: io.Discard}, claims: claims, works: testwork.Of(claims),
			key: fmt.Sprint("k", i), once: true, atMostOnce: true, signals: make(chan os.Signal, 1),
		}
		time.AfterFunc(time.Duration(i)*100*time.Microsecond, func() { r.signals <- syscall.SIGTERM })
		h, err := r.acquire(t.Context(), 0)
		if err == nil { // the signal was too late
			w.noErr(r.giveUp(h, nil))
		} else if code := codeOf(err); code != exitSignal+int(syscall.SIGTERM) {
			t.Fatal(err)
		}
		eventually(t, "the work is free", func() bool {
			record, ok, err := testwork.Of(claims).Record(t.Context(), r.key)
			return err == nil && (!ok || record.State == work.StateFree)
		})
	}
}

// A command that ends by itself while it is killed has done its work.
func TestDoneWhileKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claims := w.client("a")
	job, err := testwork.Of(claims).TryBegin(t.Context(), "k", work.AtMostOnce())
	w.noErr(err)
	r := &runner{app: &app{connection: connection{commandTimeout: 5 * time.Second}}, once: true, atMostOnce: true}
	w.noErr(r.giveUp(&holding{Claim: job.Claim, work: job, over: true, killed: true}, &child{}))
	if record, _, err := testwork.Of(claims).Record(t.Context(), "k"); err != nil || record.State != work.StateDone {
		t.Errorf("%+v, %v", record, err)
	}
}

// A claim is not that of another claimctl run around this one.
func TestInherited(t *testing.T) {
	t.Parallel()
	got := inherited([]string{"PATH=/bin", "CLAIM_ATTEMPT=3", "CLAIM_SOCK=/x", "FENCING_TOKEN=t", "CLAIMCTL_PREFIX=/p/", "HOME=/"})
	if want := []string{"PATH=/bin", "CLAIMCTL_PREFIX=/p/", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// runCutOff wants that the command is dead before etcd can give the key away.
func runCutOff(t *testing.T, program string) {
	server := testetcd.StartProcess(t)
	w := &world{T: t, prefix: "/claims/", flags: []string{"--endpoints", server.Endpoints()[0], "--prefix", "/claims/", "--owner", "operator"}}
	file := filepath.Join(t.TempDir(), "beats")
	const ttl = 15 * time.Second // it is killed 1.75 s before that, for a slow machine
	p := w.start(program, "run", "k", "--ttl", ttl.String(), "--", "sh", "-c", `trap '' TERM; while :; do date +%s%N >> `+file+`; sleep 0.02; done`)
	appears(t, file)
	server.Pause(t)
	cut := time.Now()
	r := p.ends(exitKilled)
	server.Resume(t)
	lines := strings.Fields(appears(t, file))
	var last int64
	_, err := fmt.Sscan(lines[len(lines)-1], &last)
	w.noErr(err)
	// The last renewal was sent before the cut, so that the lease ends one TTL after
	// it at the latest.
	if late := time.Unix(0, last).Sub(cut); late > ttl {
		t.Errorf("the command was alive %v after the cut: %s", late, r.err)
	}
}

// A step of the wall clock past the deadline does not kill the command: the claim is
// verified, and its deadline counts by the clock that nobody sets.
func TestRunOutlivesClockStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var step atomic.Int64
	detach := clock.Attach(w.etcd, clock.Clock{Wall: func() time.Time { return time.Now().Add(time.Duration(step.Load())) }})
	t.Cleanup(detach)
	h := &holding{Claim: w.claim(w.client("runner"), "k"), begun: time.Now()}
	before := h.left()
	step.Store(int64(time.Hour))
	if h.Remaining() != 0 {
		t.Errorf("the SDK does not doubt the claim: %v", h.Remaining())
	}
	if left := h.left(); left < before-time.Second || left > before {
		t.Errorf("%v are left after the step, %v were before", left, before)
	}
	step.Store(int64(3 * time.Hour))
	r := &runner{app: &app{}, grace: time.Second}
	c, err := startChild(exec.Command("sleep", "0.2"))
	w.noErr(err)
	r.watchOver(c, h)
	if h.killed || h.over || c.err != nil {
		t.Errorf("killed %v, over %v: %v", h.killed, h.over, c.err)
	}
	w.noErr(h.Check())
	w.noErr(h.Release(t.Context()))
	if h.left() != 0 {
		t.Errorf("%v are left after the release", h.left())
	}
}
