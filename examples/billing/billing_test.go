package main_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/etcdclaims/claims/examples/demoproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	if err := demoproc.Signals(); err != nil {
		t.Skip(err)
	}
	bin := t.TempDir() + "/billing"
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), bin).CombinedOutput()
	if strings.Contains(string(out), demoproc.ErrAbsent.Error()) {
		t.Skip(string(out))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, line := range []string{`kill -9`, `is frozen`, `late charge of a\d is refused`, `etcd restarts`, `Postgres crashes`, `; 0 invoices not charged once; [1-9]`} {
		if !regexp.MustCompile(line).Match(out) {
			t.Errorf("%s is not in:\n%s", line, out)
		}
	}
	t.Logf("%s", out)
}
