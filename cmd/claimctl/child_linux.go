package main

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// canAwaitEnd is whether a process can be waited for that keeps its number.
const canAwaitEnd = true

// awaitEnd returns when the process has ended. Its number is not given to another
// before it is waited for.
func awaitEnd(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// dieTogether has the command killed when claimctl dies.
func dieTogether(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
