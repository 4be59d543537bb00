package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Records beyond the limit, which were not read, are not called well.
func TestUnreadRecordsAreNoted(t *testing.T) {
	t.Parallel()
	e, _ := examine(t)
	for _, key := range []string{"a", "b"} {
		job, err := testwork.Of(e.Claims).TryBegin(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := job.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e.work(t.Context())
	e.has(t, OK, "work", "2 records, none")
	e.Findings, e.Limit = nil, 1
	e.work(t.Context())
	e.has(t, Note, "work", "1 record or more, none of those read is orphaned or dead; the others were not read")
}

// Leases that etcd was asked for in vain are not counted as well used.
func TestUnreadLeasesAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		host := server.Host(t)
		claims := claimtest.NewClient(t, host, etcdclaims.Config{Owner: "a"})
		if _, err := claims.TryAcquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		e := &Examination{Claims: claims, Limit: 5000, Leases: 200, Patience: 5 * time.Second, Answer: 2 * time.Second}
		host.Inject(claimtest.Fault{On: steps.TimeToLive, Times: -1, DelayReply: 6 * time.Second})
		e.Examine(t.Context(), false)
		e.has(t, Note, "claims", "1 key is held; 1 lease could not be read")
	})
}

// Sessions for which the time did not suffice are not called well.
func TestUnreadSessionsAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := examineVirtually(t)
		for i := range 10 {
			e.put(t, fmt.Sprintf("%ssession/%d/live/1", e.Claims.Prefix(), i), `{"v":1,"owner":"w"}`)
		}
		e.sessions(t.Context())
		e.has(t, OK, "sessions", "10, none renews late")
		e.Findings = nil
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		etcd := *e.etcd()
		etcd.Lease = &endsAfter{Lease: etcd.Lease, left: 3, end: cancel}
		claims, err := etcdclaims.New(&etcd, etcdclaims.Config{Owner: "a"})
		if err != nil {
			t.Fatal(err)
		}
		e.Claims = claims
		e.sessions(ctx)
		e.has(t, Note, "sessions", "the first 2, none renews late; the others were not read")
	})
}

// endsAfter ends the time of a check after some answers about leases.
type endsAfter struct {
	clientv3.Lease
	left int
	end  func()
}

func (l *endsAfter) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	resp, err := l.Lease.TimeToLive(ctx, id, opts...)
	if l.left--; l.left == 0 {
		l.end()
	}
	return resp, err
}

// A job that cannot be read is a finding. It hides neither the other jobs of its group nor other groups.
func TestUnreadableJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		claims := claimtest.NewClient(t, server.Host(t), etcdclaims.Config{Owner: "w"})
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		names := []string{"billing", "mails"}
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(keyspace.Digest(a), keyspace.Digest(b)) })
		for _, group := range names {
			s, err := sched.New(claims, sched.Config{Group: group})
			ok(err)
			for i := range 12 {
				ok(s.Add(sched.Job{
					Name: fmt.Sprintf("j%02d", i), Schedule: calendar.Must(calendar.Cron("30 2 * * *")),
					Handler: func(context.Context, sched.Tick) error { return nil },
				}))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			ok(s.Run(ctx))
			cancel()
			ok(s.Pause(t.Context(), "j11", "audit"))
		}
		unreadable := claims.Prefix() + "sched/" + keyspace.Digest(names[0]) + "/now/paused/" + keyspace.Digest("j00")
		_, err := claims.Etcd().Put(t.Context(), unreadable, `{"v":99}`)
		ok(err)
		e := &Examination{Claims: claims, Limit: 5000, Leases: 200, Patience: 5 * time.Second, Answer: 2 * time.Second}
		e.groups(t.Context())
		e.has(t, Warning, "jobs", fmt.Sprintf("cannot be read: sched: list the jobs of group %q", names[0]))
		for _, group := range names {
			e.has(t, Note, "jobs", fmt.Sprintf(`"j11" of group %q is paused`, group))
		}
	})
}
