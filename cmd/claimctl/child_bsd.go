//go:build unix && !linux

package main

import (
	"errors"
	"syscall"
)

// lastSignal is the last signal that all these systems have.
const lastSignal = 31

const canAwaitEnd = false

func awaitEnd(int) {}

func hasEnded(int) bool { return false }

// groupAlive reports whether a process of the group exists.
func groupAlive(group int) bool { return !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) }

func dieTogether(*syscall.SysProcAttr) {}
