package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
)

func TestRunSeveralKeys(t *testing.T) {
	t.Parallel()
	w, program := newWorld(t), program(t)
	run := func(args ...string) *process {
		t.Helper()
		return w.start(program, append([]string{"run", "b", "a"}, args...)...)
	}
	a, b := w.client("api-7"), w.client("api-8")
	both := run("--note", "moves", "--", "sh", "-c", `echo $FENCING_TOKEN $CLAIM_KEY $CLAIM_KEYS`).ends(0).out
	if !strings.Contains(both, `key="b"`) || !strings.HasSuffix(both, " b b a\n") {
		t.Errorf("the command sees %q", both)
	}
	heldA := w.claim(a, "a")
	if r := run("--", "true").ends(exitBusy); !strings.Contains(r.err, "held by api-7") {
		t.Errorf("it says %q", r.err)
	}
	w.isFree("b")
	if r := run("--wait", "3s", "--", "true").ends(exitTimeout); !strings.Contains(r.err, ": still held by") || !strings.Contains(r.err, ", after 3s\n") {
		t.Errorf("it says %q", r.err)
	}
	waiting := run("--wait", "1m", "--", "echo", "my turn")
	heldB := w.claim(b, "b")
	const tries = 1500 * time.Millisecond // within which it tries again
	time.Sleep(tries)
	w.noErr(heldA.Release(t.Context()))
	select {
	case <-waiting.done:
		t.Fatalf("it ran while b was held: %s", waiting.out.String())
	case <-time.After(tries):
	}
	w.noErr(heldB.Release(t.Context()))
	if r := waiting.ends(0); r.out != "my turn\n" {
		t.Errorf("it says %q", r.out)
	}
	_, err := a.TryAcquire(t.Context(), "a", etcdclaims.Shared()) // nobody deletes the record of readers that died
	w.noErr(err)
	waiting = run("--wait", "1m", "--", "echo", "my turn")
	readers, _, err := doctor.Sharers(t.Context(), b, "a", 10)
	if err != nil || len(readers) != 1 {
		t.Fatalf("%+v %v", readers, err)
	}
	_, err = w.etcd.Revoke(t.Context(), readers[0].Lease)
	w.noErr(err)
	waiting.ends(0)
	for _, key := range []string{"a", "b"} { // each is enough to end the command
		file := filepath.Join(t.TempDir(), "pid")
		p := run("--", "sh", "-c", fmt.Sprintf(`trap '' TERM; echo $$ > %s; while :; do sleep 0.05; done`, file))
		appears(t, file)
		first, second := as[explanation](w, "explain", "a"), as[explanation](w, "explain", "b")
		if first.Fence != second.Fence {
			t.Errorf("the fences are %d and %d", first.Fence, second.Fence)
		}
		w.ok("release", key, "--fence", fmt.Sprint(first.Fence), "--reason", "stuck job")
		if r := p.ends(exitKilled); !strings.Contains(r.err, "stuck job") {
			t.Errorf("it says %q", r.err)
		}
		w.isFree("a")
		w.isFree("b")
	}
	for _, args := range [][]string{{"--once"}, {"--slots", "2"}, {"--shared"}} {
		run(append(args, "--", "true")...).ends(exitUsage)
	}
	w.start(program, "elect", "a", "b", "--", "true").ends(exitUsage)
}
