package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

// tiny is everything there is, with so little of each that it says nothing.
func tiny(t *testing.T) options {
	t.Helper()
	if err := testetcd.Signals(); err != nil {
		t.Skip(err)
	}
	only := `^(cycles/(1|16) |hand-over/2 |slots/16 |readers/16 |holding|waiting|depth|fail-over/1 of|queue/16|pickup)`
	o, err := parse([]string{"-only", only}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir(): that one is closed to the user that Postgres runs as.
	o.dir, err = os.MkdirTemp("", "comparetest-*") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(o.dir) })
	if err := os.Chmod(o.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	o.rounds, o.deaths = 1, 2
	o.warmUp, o.window, o.settle, o.hold = time.Millisecond, 20*time.Millisecond, time.Millisecond, 100*time.Millisecond
	o.claims, o.clients, o.items = []int{300}, []int{20}, []int{200}
	return o
}

// TestCompare makes a comparison of everything, to its end.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	o := tiny(t)
	var stdout, stderr bytes.Buffer
	if err := compare(t.Context(), o, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	wants := []string{
		`(?m)^\d+ cores, .* etcd 3\.\d+\.\d+, with fsync, on the same machine$`,
		`(?m)^( +[\d,.]+){6} +etcdclaims$`,
		`(?m)^ +[\d,.]+ +1 .* etcd Mutex, a shared session$`,
		`(?m) redislock, Redis fsync always(: skipped: .*)?$`,
		`(?m)^ +a second +ratio .* 2 waiters, across clients$`,
		`(?m) River, 32 at a time(: skipped: .*)?$`,
		`(?m)^ +bytes each .* 300 claims$`,
	}
	for _, want := range wants {
		if !regexp.MustCompile(want).Match(stdout.Bytes()) {
			t.Errorf("it does not print %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", &stdout)
	}
	nothingLeft(t, o.dir)
}

// TestInterrupt breaks a comparison off while something is measured.
func TestInterrupt(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	o := tiny(t)
	o.window = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := &notice{what: "round 1", then: func() { time.AfterFunc(time.Second, cancel) }}
	err := compare(ctx, o, io.Discard, began)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	nothingLeft(t, o.dir)
}

// notice calls then when what is written.
type notice struct {
	what string
	then func()
}

func (n *notice) Write(b []byte) (int, error) {
	if n.then != nil && bytes.Contains(b, []byte(n.what)) {
		n.then()
		n.then = nil
	}
	return len(b), nil
}

// nothingLeft checks that no data is left, and no process that has any.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in %s: %v, %v", dir, left, err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range commands {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(dir)) {
			t.Errorf("left over: %q", line)
		}
	}
}

func TestFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		_, err := parse(args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want it to say %q", args, err, want)
		}
	}
	f("only flags", "fast")
	f("-only", "-only", "(")
	f("not defined", "-test.v") // those of package testing are not ours

	// What is to be compared brings its reference.
	only := regexp.MustCompile("hand-over/16.*etcdclaims")
	if w := chosen(workloads(options{}), only); len(w) != 1 || len(w[0].points) != 1 || len(w[0].points[0].rows) != 2 {
		t.Errorf("chosen are %+v", w)
	}
	if err := run(t.Context(), []string{"-only", "nothing"}, io.Discard, io.Discard); err == nil {
		t.Error("no error though nothing is to be measured")
	}
}
