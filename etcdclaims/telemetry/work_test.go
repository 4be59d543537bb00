package telemetry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
)

func TestWork(t *testing.T) {
	inWorld(t, func(w *world) {
		claims, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		dies, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
		begin := func(c *etcdclaims.Client, key string) *work.Work {
			job, err := testwork.Of(c).TryBegin(w.Context(), key)
			if err != nil {
				w.Fatal(err)
			}
			return job
		}
		ok := func(err error) {
			if err != nil {
				w.Fatal(err)
			}
		}
		begin(claims, "jobs/claimed")
		begin(claims, "other/claimed")
		ok(begin(claims, "jobs/done").Complete(w.Context()))
		_, err := begin(claims, "jobs/dead").Fail(w.Context(), etcdclaims.Permanent(errors.New("no")))
		ok(err)
		begin(dies, "jobs/orphan")
		ok(admin.ForceRelease(w.Context(), claims, "jobs/orphan", "test"))
		stop := w.tel.WatchWork("jobs", claims, "jobs/", time.Minute)
		expect := func(claimed, orphaned, dead string) {
			w.Helper()
			w.expect(map[string]string{
				"etcdclaims.work.records{work=jobs,work.state=claimed}":    claimed,
				"etcdclaims.work.records{work=jobs,work.state=orphaned}":   orphaned,
				"etcdclaims.work.records{work=jobs,work.state=free}":       "0",
				"etcdclaims.work.records{work=jobs,work.state=failed}":     "0",
				"etcdclaims.work.records{work=jobs,work.state=dead}":       dead,
				"etcdclaims.work.records{work=jobs,work.state=unreadable}": "0",
			})
		}
		expect("1", "1", "1")
		ok(testwork.Of(claims).TryRun(w.Context(), "jobs/orphan", func(context.Context, *work.Work) error { return nil }))
		time.Sleep(30 * sec)
		expect("1", "1", "1") // the counts of 30 s ago are good enough
		time.Sleep(31 * sec)
		expect("1", "0", "1")
		host.Cut()
		time.Sleep(61 * sec)
		begun := time.Now()
		expect("1", "0", "1") // what was known, while a count hangs
		if took := time.Since(begun); took != 2*sec {
			w.Errorf("the collection took %v", took)
		}
		time.Sleep(2 * time.Minute)
		host.Heal()
		time.Sleep(2 * time.Minute)
		expect("0", "1", "1") // the owner lost it in the outage
		stop()
		w.expect(map[string]string{"etcdclaims.work.records{work=jobs,work.state=dead}": ""})
	})
}
