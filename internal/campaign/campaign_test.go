package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

// TestCampaign makes a short run of the whole program.
func TestCampaign(t *testing.T) {
	testetcd.SkipUnlessLong(t, "runs processes for half a minute")
	if err := testetcd.Signals(); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testetcd.Program(t, "campaign"), "-for", "6s", "-ttl", "2s", "-workers", "4", "-keys", "4", "-seed", "1", "-dir", dir)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{
		`(?m)^ +0\.\d s  seed 1: 4 workers, 4 keys, TTL 2s, faults for 6s$`,
		`(?m)^ +\d+\.\d s  .* is over after `,
		`(?m)^terms +[1-9]`,
		`(?m)^terms of suspectable keys +[1-9]`,
		`(?m)^terms of suspectable keys handed over +[1-9]`,
		`(?m)^effects in etcd +[1-9]`,
		`(?m)^items enqueued +[1-9]`,
		`(?m)^faults: .* [1-9]`,
		`(?m)^elements in the fenced set +[1-9]`,
		`(?m)^errors not accounted for +0 `,
		`(?m)^stale effects accepted +0 `,
		`(?m)^rules of suspicion broken +0 `,
		`(?m)^items lost +0 `,
		`(?m)^doubled +0 `,
		`(?m)^not as answered +0 `,
		`journals and logs are in `,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("it does not print %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, "w0.1"+journalEnd)); err != nil {
		t.Errorf("a directory that was given is to be kept: %v", err)
	}
}

func TestFlags(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		_, err := parse(args)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want it to say %q", args, err, want)
		}
	}
	f("only flags", "fast")
	f("positive", "-for", "0s")
	f("2 to 64", "-workers", "1")
	f("1 to 1000", "-keys", "0")
	f("full seconds", "-ttl", "1s")
	f("full seconds", "-ttl", "2500ms")
	f("not defined", "-test.v") // those of package testing are not ours

	o, err := parse(nil)
	if err != nil || o.seed == 0 || o.length != 2*time.Minute || o.workers != 6 || o.keys != 8 || o.ttl != 5*time.Second {
		t.Errorf("by default %+v, %v", o, err)
	}
}

func TestDirMustBeEmpty(t *testing.T) {
	if err := testetcd.Signals(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "w0.1"+journalEnd), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), []string{"-dir", dir}, new(strings.Builder))
	if err == nil || !strings.Contains(err.Error(), "not empty") || errors.Is(err, errViolated) {
		t.Errorf("error %v", err)
	}
}
