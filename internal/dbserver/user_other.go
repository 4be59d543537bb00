//go:build !unix

package dbserver

import "os/exec"

func unprivileged(string) (func(*exec.Cmd) *exec.Cmd, error) {
	return func(cmd *exec.Cmd) *exec.Cmd { return cmd }, nil
}
