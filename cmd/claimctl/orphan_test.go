//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// A worker is killed. Its lease ends, and its work is orphaned.
func TestStagedOrphan(t *testing.T) {
	t.Parallel()
	w, file := worldOn(t, testetcd.Start(t)), filepath.Join(t.TempDir(), "begun")
	worker := w.start(program(t), "run", "--owner", "worker-1", "--once", "--ttl", etcdclaims.MinTTL.String(), "invoices/7", "--", "sh", "-c", "echo > "+file+"; exec sleep 60")
	appears(t, file)
	worker.signal(syscall.SIGKILL)
	<-worker.done
	eventually(t, "its work is orphaned", func() bool { return strings.Contains(w.doctor().out, "1 orphaned") })
	w.finds(w.types(1, "doctor"), "1 orphaned", "invoices/7")
	w.finds(w.types(0, "work", "ls", "--state", "orphaned"), "worker-1")
	w.types(0, "work", "retry", "invoices/7")
	w.types(0, "run", "--once", "invoices/7", "--", "true") // a worker that begins it again
	w.finds(w.types(0, "work", "show", "invoices/7"), "done")
	w.types(0, "doctor")
}
