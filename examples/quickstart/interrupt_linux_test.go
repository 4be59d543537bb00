package main_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// Whatever ends the parent ends the workers, even the one that is frozen.
func TestInterrupt(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	bin := testetcd.Program(t, "quickstart")
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Kill} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			args := []string{"-root", tree(t, files)}
			if sig == os.Interrupt {
				server := testetcd.Shared(t)
				args = append(args, "-endpoints", strings.Join(server.Endpoints(), ","))
				defer checkEmpty(t, server)
			}
			cmd := command(t, bin, args...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			frozen := false
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if strings.Contains(lines.Text(), "worker-2 is frozen") {
					frozen = true
					if err := cmd.Process.Signal(sig); err != nil {
						t.Error(err)
					}
				}
			}
			if !frozen {
				t.Error("no worker was frozen")
			}
			if err := cmd.Wait(); err == nil {
				t.Error("exit 0")
			}
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				left := processes(t, cmd.Path)
				if len(left) == 0 {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("processes are left over: %v", left)
				}
			}
		})
	}
}

// processes returns the directories below /proc of those that run a program.
func processes(t *testing.T, program string) []string {
	t.Helper()
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, exe := range exes {
		// Most processes are none of our business, and some are gone by now.
		if target, err := os.Readlink(exe); err == nil && target == program {
			found = append(found, filepath.Dir(exe))
		}
	}
	return found
}
