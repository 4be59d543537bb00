//go:build !unix

package testetcd

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

func needSignals(tb testing.TB) {
	tb.Helper()
	tb.Skip("testetcd: processes cannot be paused on this system")
}

func dieWithParent(*exec.Cmd) {}

func stopProcess(*os.Process) error     { return errors.ErrUnsupported }
func continueProcess(*os.Process) error { return errors.ErrUnsupported }
func isStopped(int) (bool, error)       { return false, errors.ErrUnsupported }
