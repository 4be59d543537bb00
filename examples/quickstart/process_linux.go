package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// dieWithParent has the kernel kill the process that cmd will start when this
// one is gone, frozen or not, even if this one was killed itself.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // what is typed at the terminal is for the parent
	}
	// The kernel takes the end of the thread that started the child for the end
	// of the parent, so this goroutine keeps its thread for good.
	runtime.LockOSThread()
}
