package doctor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testwork"
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
		e.Survey(t.Context())
		e.has(t, Note, "claims", "1 key is held; 1 lease could not be read")
	})
}
