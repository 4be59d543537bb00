//go:build unix && !linux

package testetcd

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

const canSignal = true

// dieWithParent cannot be had here: an etcd may be left over from tests that
// were killed.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil { // else it says which user to run as
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
}

func stopProcess(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

func isStopped(pid int) (bool, error) {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), err
}
