package demoproc

import (
	"context"
	"os/exec"

	"github.com/etcdclaims/claims/internal/dbserver"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// A Child is a process that can be paused and killed, and that does not outlive this one
// where the system can see to that.
type Child = testetcd.Child

// StartChild starts the command, which must not be started or waited for otherwise.
func StartChild(cmd *exec.Cmd) (*Child, error) { return testetcd.StartChild(cmd) }

// Signals returns nil if processes can be paused on this system, and otherwise an error
// that matches errors.ErrUnsupported.
func Signals() error { return testetcd.Signals() }

// ErrAbsent is returned for a server that is not installed.
var ErrAbsent = dbserver.ErrAbsent

// Postgres returns the command that serves Postgres in the directory, on a socket there. See
// PostgresReady for when it does.
func Postgres(ctx context.Context, dir, superuser string, settings ...string) (*exec.Cmd, error) {
	return dbserver.Postgres(ctx, dir, superuser, settings...)
}

// PostgresReady returns nil once the Postgres of the directory accepts connections.
func PostgresReady(dir string) error { return dbserver.PostgresReady(dir) }
