package sched_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// Without a tz database, as in a scratch container, schedules in a zone are errors that name
// the remedy. They do not silently follow UTC.
func TestWithoutZones(t *testing.T) {
	switch {
	case !testetcd.Long():
		t.Skip("a program must be built: with -long")
	case os.Getuid() != 0:
		t.Skip("only root may change the root directory")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "zoneless"), "./testdata/zoneless")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program := exec.Command("/zoneless")
	program.Dir, program.Env, program.SysProcAttr = "/", []string{}, &syscall.SysProcAttr{Chroot: dir}
	out, err := program.CombinedOutput()
	if err != nil {
		t.Skipf("cannot run it in a directory of its own: %v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines[:len(lines)-1] {
		if !strings.Contains(line, `unknown time zone Europe/Berlin: this machine has no tz database; install one, or import _ "time/tzdata"`) {
			t.Error(line)
		}
	}
	if last := lines[len(lines)-1]; len(lines) != 6 || last != "utc: <nil> 2026-01-01 02:30:00 +0000 UTC" {
		t.Errorf("%s", out)
	}
}
