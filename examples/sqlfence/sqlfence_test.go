package main_test

import (
	"os/exec"
	"regexp"
	"testing"

	"go.uber.org/goleak"

	"github.com/etcdclaims/claims/examples/demoproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	if err := demoproc.Signals(); err != nil {
		t.Skip(err)
	}
	bin := t.TempDir() + "/sqlfence"
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), bin).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, row := range []string{`false +written +70 +130 +50 +250 of 300`, `true +refused +100 +150 +50 +300 of 300`} {
		if !regexp.MustCompile(row).Match(out) {
			t.Errorf("%s is not in:\n%s", row, out)
		}
	}
}
