package main

import (
	"context"
	"os/exec"
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testetcd.Program(t, "campaign"), "-for", "6s", "-ttl", "2s", "-seed", "1")
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, want := range []string{
		`(?m)^ +0\.\d s  seed 1: TTL 2s, faults for 6s$`,
		`(?m)^ +\d+\.\d s  .* is over after `,
		`(?m)^terms +[1-9]`,
		`(?m)^terms handed over +[1-9]`,
		`(?m)^effects by Claim.Txn: done +[1-9]`,
		`(?m)^effects by a guard: done +[1-9]`,
		`(?m)^effects by a late guard: refused +[1-9]`,
		`(?m)^effects on the set: done +[1-9]`,
		`(?m)^effects on an item: done +[1-9]`,
		`(?m)^items enqueued +[1-9]`,
		`(?m)^faults: .* [1-9]`,
		`(?m)^errors not accounted for +0 `,
		`(?m)^stale effects accepted +0 `,
		`(?m)^rules of suspicion broken +0 `,
		`(?m)^items lost +0 `,
		`(?m)^not as answered, or doubled +0 `,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("it does not print %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
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
	f("full seconds", "-ttl", "1s")
	f("full seconds", "-ttl", "2500ms")
	f("not defined", "-test.v") // those of package testing are not ours

	o, err := parse(nil)
	if err != nil || o.seed == 0 || o.length != 2*time.Minute || o.ttl != 5*time.Second {
		t.Errorf("by default %+v, %v", o, err)
	}
}
