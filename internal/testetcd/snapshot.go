package testetcd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
)

// A Snapshot is a backup of a server, as etcdctl snapshot save makes it.
type Snapshot struct {
	path string
}

// TakeSnapshot saves what the server behind the client has, for the duration of
// the test.
func TakeSnapshot(tb testing.TB, c *clientv3.Client) Snapshot {
	tb.Helper()
	s := Snapshot{path: filepath.Join(tb.TempDir(), "snapshot.db")}
	if err := s.save(c); err != nil {
		tb.Fatalf("testetcd: take a snapshot: %v", err)
	}
	return s
}

func (s Snapshot) save(c *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := c.SnapshotWithVersion(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Snapshot.Close() }()
	f, err := os.Create(s.path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, resp.Snapshot); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// restore makes the member's data what the snapshot has, as etcdutl snapshot
// restore does. With a bump, revisions go on from that far beyond the
// snapshot's, and all before count as compacted.
func (m member) restore(s Snapshot, bump uint64) error {
	if err := os.RemoveAll(m.dir); err != nil {
		return err
	}
	err := snapshot.NewV3(logger).Restore(snapshot.RestoreConfig{
		SnapshotPath:        s.path,
		Name:                m.name,
		OutputDataDir:       m.dir,
		PeerURLs:            []string{"http://" + m.peer},
		InitialCluster:      m.bootstrap,
		InitialClusterToken: clusterToken,
		RevisionBump:        bump,
		MarkCompacted:       bump > 0,
	})
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// Restore replaces the server by one that has what the snapshot has. Leases
// that were in it live again, in full. Without a bump revisions go back, which
// is what operators are warned of.
func (v *Virtual) Restore(tb testing.TB, s Snapshot, bump uint64) {
	tb.Helper()
	v.stop()
	if err := v.member.restore(s, bump); err != nil {
		tb.Fatalf("testetcd: %v", err)
	}
	if err := v.start(); err != nil {
		tb.Fatalf("testetcd: start virtual after a restore: %v", err)
	}
}

// Restore replaces the member, which must stand alone, by one that has what the
// snapshot has; see [Virtual.Restore].
func (s *Server) Restore(tb testing.TB, from Snapshot, bump uint64) {
	tb.Helper()
	if s.cluster != nil {
		tb.Fatal("testetcd: restore a member that stands alone, not one of a cluster")
	}
	s.Stop(tb)
	if err := s.member.restore(from, bump); err != nil {
		tb.Fatalf("testetcd: %v", err)
	}
	if err := s.start(); err != nil {
		tb.Fatalf("testetcd: start after a restore: %v", err)
	}
}
