package dbserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// MariaDB returns the command that serves databases in the directory, which may
// be empty, on a socket there: see MariaDBSocket. Without tables of users it lets
// everybody in who can reach the socket. The arguments are added.
func MariaDB(dir string, args ...string) (*exec.Cmd, error) {
	path, err := exec.LookPath("mariadbd")
	if err != nil {
		path = "/usr/sbin/mariadbd" // which is in root's PATH
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("mariadbd %w (Debian: mariadb-server)", ErrAbsent)
		}
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, fmt.Errorf("mariadbd does not run as root: %w", err)
	}
	cmd := as(exec.Command(path, append([]string{
		"--no-defaults", "--datadir=" + dir, "--socket=" + MariaDBSocket(dir), "--pid-file=" + filepath.Join(dir, "pid"),
		"--skip-networking", "--skip-grant-tables",
	}, args...)...))
	cmd.Dir = dir
	return cmd, nil
}

// MariaDBSocket returns the path of the socket.
func MariaDBSocket(dir string) string { return filepath.Join(dir, "socket") }
