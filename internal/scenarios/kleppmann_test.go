package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

const lease = 2 * time.Second // the shortest that etcd grants

// A storage is what the clients write to. version is what a client presents as the
// proof of its turn.
type storage interface {
	write(value string, version int64) error
}

// unchecked is a storage that believes everybody.
type unchecked struct{}

func (unchecked) write(string, int64) error { return nil }

// equalVersion is a storage with the rule of contrib/lock: a version is refused unless it
// equals the one of the value that is stored.
type equalVersion struct{ stored int64 }

func (s *equalVersion) write(_ string, version int64) error {
	if s.stored != 0 && version != s.stored {
		return errors.New("another version is stored")
	}
	s.stored = version
	return nil
}

// fenced is a storage that refuses lower fences than the greatest it has seen.
type fenced struct{ gate fencing.Memory }

func (s *fenced) write(_ string, version int64) error {
	return s.gate.Admit(context.Background(), fencing.Token{Key: "key0", Fence: version})
}

// leaseVersion acquires etcd's Mutex and returns the lease of its session, which
// contrib/lock uses as the version.
func leaseVersion(t *testing.T, host *claimtest.Host) int64 {
	t.Helper()
	session, err := concurrency.NewSession(host.Etcd(t), concurrency.WithTTL(int(lease/time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	if err := concurrency.NewMutex(session, "/lock").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	return int64(session.Lease())
}

// fence acquires a claim.
func fence(t *testing.T, host *claimtest.Host) int64 {
	t.Helper()
	claim, err := claimtest.NewClient(t, host, etcdclaims.Config{TTL: lease, AllowShortTTL: true}).Acquire(t.Context(), "lock")
	if err != nil {
		t.Fatal(err)
	}
	return claim.Fence()
}

// TestKleppmann is the scenario of Martin Kleppmann's "How to do distributed locking",
// which contrib/lock of etcd makes a program of: a client that has the lock is paused
// for longer than its lease, a second client gets the lock and writes, and the first
// wakes and writes. Then once more, with a first client that has also written before
// its pause.
func TestKleppmann(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "lock\tstorage\tthe first wrote before its pause\twrite of the second\tlate write of the first")
	for _, c := range []struct {
		lock, storage string
		acquire       func(*testing.T, *claimtest.Host) int64
		open          func() storage
		early         bool
		second, late  string // what is to come
	}{
		{"Mutex", "does not check", leaseVersion, func() storage { return unchecked{} }, false, "accepted", "accepted"},
		{"Mutex", "does not check", leaseVersion, func() storage { return unchecked{} }, true, "accepted", "accepted"},
		{"Mutex", "contrib/lock: equal lease", leaseVersion, func() storage { return &equalVersion{} }, false, "accepted", "refused"},
		{"Mutex", "contrib/lock: equal lease", leaseVersion, func() storage { return &equalVersion{} }, true, "refused", "accepted"},
		{"claim", "checks the fence", fence, func() storage { return &fenced{} }, false, "accepted", "refused"},
		{"claim", "checks the fence", fence, func() storage { return &fenced{} }, true, "accepted", "refused"},
	} {
		synctest.Test(t, func(t *testing.T) {
			second, late := pausedClient(t, c.acquire, c.open(), c.early)
			fmt.Fprintf(table, "%s\t%s\t%v\t%s\t%s\n", c.lock, c.storage, c.early, second, late)
			if second != c.second || late != c.late {
				t.Errorf("%s, %s, early write %v: the second is %s and the late write %s, want %s and %s",
					c.lock, c.storage, c.early, second, late, c.second, c.late)
			}
		})
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
}

// pausedClient returns what became of the second client's write and of the first one's
// late write.
func pausedClient(t *testing.T, acquire func(*testing.T, *claimtest.Host) int64, s storage, early bool) (second, late string) {
	t.Helper()
	server := claimtest.Start(t)
	verdict := func(err error) string {
		if err != nil {
			return "refused"
		}
		return "accepted"
	}
	host := server.Host(t)
	first := acquire(t, host)
	if early {
		if err := s.write("value 0 of the first", first); err != nil {
			t.Fatal(err)
		}
	}
	host.Cut() // a paused process renews nothing
	second = verdict(s.write("value of the second", acquire(t, server.Host(t))))
	host.Heal()
	return second, verdict(s.write("value 1 of the first", first))
}
