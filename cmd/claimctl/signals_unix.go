//go:build unix

package main

import (
	"os"
	"syscall"
)

// interrupts are the signals that end claimctl.
var interrupts = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
