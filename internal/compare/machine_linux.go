package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// syncData is what etcd calls.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// cpuTimeOf is what another process used so far, 0 if that is not known.
func cpuTimeOf(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The fields after the name, which is in parentheses and may hold any: the
	// state is the third of all, user and system time are 14th and 15th, in
	// hundredths of a second on every architecture.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	if userErr != nil || systemErr != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
