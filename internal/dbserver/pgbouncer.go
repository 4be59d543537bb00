package dbserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// PgBouncer returns the command of a pooler in the directory. It gives clients the connections
// of a Postgres, whose socket is in another directory, for one transaction each.
func PgBouncer(dir, postgres, superuser string) (*exec.Cmd, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		return nil, fmt.Errorf("pgbouncer %w (Debian: pgbouncer)", ErrAbsent)
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, fmt.Errorf("pgbouncer does not run as root: %w", err)
	}
	settings := fmt.Sprintf("[databases]\n"+
		"postgres = host=%s port=5432 user=%s\n"+
		"[pgbouncer]\n"+
		"pool_mode = transaction\n"+
		"default_pool_size = 3\n"+
		"auth_type = any\n"+
		"listen_addr =\n"+
		"listen_port = 5432\n"+
		"unix_socket_dir = %s\n", postgres, superuser, dir)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		return nil, err
	}
	cmd := as(exec.Command(path, file))
	cmd.Dir = dir
	return cmd, nil
}
