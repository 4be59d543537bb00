//go:build unix

package dbserver

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// unprivileged returns what makes a command run as somebody who is not root, and
// gives the directory to them. For a user who is not root, it does nothing.
func unprivileged(dir string) (func(*exec.Cmd) *exec.Cmd, error) {
	if os.Getuid() != 0 {
		return func(cmd *exec.Cmd) *exec.Cmd { return cmd }, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		if who, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, uidErr := strconv.ParseUint(who.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr, os.Chown(dir, int(uid), int(gid))); err != nil {
		return nil, err
	}
	return func(cmd *exec.Cmd) *exec.Cmd {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return cmd
	}, nil
}
