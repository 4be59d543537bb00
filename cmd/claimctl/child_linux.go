package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// lastSignal is the last of the real-time signals.
const lastSignal = 64

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

// hasEnded reports whether a child that was not waited for has ended.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// groupAlive reports whether a process of the group runs. Dead ones that nobody has
// waited for, as under an init that does not, count as ended.
func groupAlive(group int) bool {
	if errors.Is(unix.Kill(-group, 0), unix.ESRCH) {
		return false
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return true // not known
	}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // ended meanwhile
		}
		var state string
		var parent, its int
		_, after, _ := bytes.Cut(b[bytes.LastIndexByte(b, ')')+1:], []byte(" ")) // the name may have any bytes
		if _, err := fmt.Sscan(string(after), &state, &parent, &its); err == nil && its == group && state != "Z" && state != "X" {
			return true
		}
	}
	return false
}

// dieTogether has the command killed when claimctl dies. That reaches the process
// that claimctl started, and none of those that this one started.
func dieTogether(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
