//go:build unix && !linux

package main

import "syscall"

const canAwaitEnd = false

func awaitEnd(int) {}

func dieTogether(*syscall.SysProcAttr) {}
