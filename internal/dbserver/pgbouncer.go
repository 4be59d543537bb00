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
	settings := fmt.Sprintf("[databases]\npostgres = host=%s port=5432 user=%s\n"+
		"[pgbouncer]\npool_mode = transaction\ndefault_pool_size = 3\nauth_type = any\nlisten_addr =\nlisten_port = 5432\nunix_socket_dir = %s\n", postgres, superuser, dir)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		return nil, err
	}
	cmd := as(exec.Command(path, file))
	cmd.Dir = dir
	return cmd, nil
}
