//go:build unix && !linux

package main

import (
	"errors"
	"syscall"
)

const canAwaitEnd = false

func awaitEnd(int) {}

// groupAlive reports whether a process of the group exists.
func groupAlive(group int) bool { return !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) }

func dieTogether(*syscall.SysProcAttr) {}
