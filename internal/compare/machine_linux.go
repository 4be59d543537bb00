package main

import (
	"os"
	"strings"
	"syscall"
)

func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown model"
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown model" // of ARM, the kernel tells numbers only
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown kernel"
	}
	return strings.TrimSpace(string(release))
}

// syncData is what etcd calls.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
