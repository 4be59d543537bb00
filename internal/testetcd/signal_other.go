//go:build !unix

package testetcd

import (
	"errors"
	"os"
	"os/exec"
)

const canSignal = false

func dieWithParent(*exec.Cmd) {}

func stopProcess(*os.Process) error     { return errors.ErrUnsupported }
func continueProcess(*os.Process) error { return errors.ErrUnsupported }
func isStopped(int) (bool, error)       { return false, errors.ErrUnsupported }
