package testetcd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const canSignal = true

// dieWithParent has the kernel kill the child when this process is gone, even
// if it did not get to clean up.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil { // else it says which user to run as
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true // an interrupt from the terminal is for the tests
}

func stopProcess(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// isStopped reports whether all threads of a process are stopped.
func isStopped(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	if len(stats) == 0 {
		return false, fmt.Errorf("process %d is gone", pid)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // that thread has ended
		}
		if err != nil {
			return false, err
		}
		// The state follows the name, which is in parentheses and may hold any.
		_, rest, ok := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
		if !ok || len(rest) == 0 {
			return false, fmt.Errorf("unexpected %s: %q", path, stat)
		}
		switch rest[0] {
		case 'T':
		case 'Z', 'X':
			return false, fmt.Errorf("process %d is dead", pid)
		default:
			return false, nil
		}
	}
	return true, nil
}
