package doctor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What looks wrong is reported if the second reading fails, and so is the failure.
func TestSecondReadingFails(t *testing.T) {
	for name, tt := range map[string]struct {
		set    func(t *testing.T, e *Examination)
		check  func(e *Examination, ctx context.Context)
		of     string
		detail string
	}{
		"ghost that holds": {func(t *testing.T, e *Examination) {
			lease := e.put(t, e.Claims.OwnKey("orders/7"), `{"v":1,"owner":"dead"}`)
			e.etcd().Lease = withoutLease{e.etcd().Lease, lease}
		}, (*Examination).claims, "claims", "ghosts, whose lease is gone: orders/7; found once only, the second reading failed: "},
		"ghost that waits": {func(t *testing.T, e *Examination) {
			lease := e.put(t, e.Claims.Prefix()+"wait/"+keyspace.Digest("k")+"/x", `{"v":1,"owner":"dead"}`)
			e.etcd().Lease = withoutLease{e.etcd().Lease, lease}
		}, (*Examination).claims, "lines", "a ghost waits: dead, since , has no lease; found once only, the second reading failed: "},
		"first in line for a free key": {func(t *testing.T, e *Examination) {
			e.waits(t, "k", "deaf", time.Now().Add(-grace))
		}, (*Examination).claims, "lines", "deaf is first in line for a key that is free, since 1999-12-31T23:59:"},
		"partitions that nobody owns": {func(t *testing.T, e *Examination) {
			e.member(t, "pod-b")
		}, (*Examination).partitionGroups, "groups", `nobody owns 2 partitions: 00000, 00001, which pod-b is to have; found once only, the second reading failed: `},
	} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/slow=%v", name, slow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e, host := examineVirtually(t)
					tt.set(t, e)
					patient := 5 * time.Second
					if slow {
						patient = patience / 2 // there is no time for a second reading
					} else {
						time.AfterFunc(patience/2, host.Cut)
					}
					ctx, cancel := context.WithTimeout(t.Context(), patient)
					defer cancel()
					tt.check(e, ctx)
					host.Heal()
					e.has(t, Warning, tt.of, tt.detail)
					e.has(t, Warning, tt.of, "; found once only, the second reading failed: ")
					for _, f := range e.Findings {
						if f.Check == tt.of && f.Level == OK && tt.of != "claims" {
							t.Errorf("called well: %+v", f)
						}
					}
				})
			})
		}
	}
}

// What looks wrong in one group is reported if another one cannot be read.
func TestOtherGroupCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := examineVirtually(t)
		e.member(t, "pod-b")
		root := e.Claims.Prefix() + "group/" + strings.Repeat("f", len(keyspace.Digest(""))) + "/" // after any other
		e.put(t, root+"spec", `{"v":1,"group":"broken","partitions":2}`)
		e.put(t, e.Claims.Prefix()+"group/"+keyspace.Digest("broken")+"/spec", `broken`)
		e.partitionGroups(t.Context())
		e.has(t, Warning, "groups", "cannot be read: ")
		e.has(t, Warning, "groups", "which pod-b is to have")
	})
}

// A lease that is gone does not come back: it need not be read again.
func TestLeaseIsNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := examineVirtually(t)
		lease := e.put(t, e.Claims.OwnKey("orders/7"), `{"v":1,"owner":"dead"}`)
		e.etcd().Lease = unreadableLeases{withoutLease{e.etcd().Lease, lease}, time.Now().Add(patience / 2)}
		e.claims(t.Context())
		e.has(t, Warning, "claims", "ghosts, whose lease is gone: orders/7")
	})
}

// unreadableLeases is the leases of an etcd that from some time on does not answer for any.
type unreadableLeases struct {
	clientv3.Lease
	from time.Time
}

func (u unreadableLeases) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	if time.Now().After(u.from) {
		return nil, context.DeadlineExceeded
	}
	return u.Lease.TimeToLive(ctx, id, opts...)
}

// examineVirtually returns an examination in virtual time, and the machine on which it runs.
func examineVirtually(t *testing.T) (*Examination, *claimtest.Host) {
	t.Helper()
	host := claimtest.Start(t).Host(t)
	claims := claimtest.NewClient(t, host, etcdclaims.Config{Owner: "a"})
	return &Examination{Claims: claims, Limit: 100, Leases: 100, Patience: 5 * time.Second, Answer: 2 * time.Second}, host
}

// put puts a key on a lease of its own.
func (e *Examination) put(t *testing.T, key, value string) clientv3.LeaseID {
	t.Helper()
	lease, err := e.etcd().Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.etcd().Put(t.Context(), key, value, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	return lease.ID
}

// member makes a group of two partitions with one member, which claims none.
func (e *Examination) member(t *testing.T, name string) {
	t.Helper()
	root := e.Claims.Prefix() + "group/" + keyspace.Digest("orders") + "/"
	e.put(t, root+"spec", `{"v":1,"group":"orders","partitions":2}`)
	e.put(t, root+"member/"+name, `{"v":1,"instance":"x","weight":1,"since":"2026-01-01T00:00:00Z"}`)
	if s, err := group.Read(t.Context(), e.Claims, "orders"); err != nil || len(s.Members) != 1 {
		t.Fatal(s, err)
	}
}
