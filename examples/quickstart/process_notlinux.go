//go:build unix && !linux

package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent cannot be had here: workers notice by themselves that the parent
// is gone, unless they are frozen.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what is typed at the terminal is for the parent
}
