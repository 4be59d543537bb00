package sched_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A value of a later version of this package under each kind of key: the job that
// it is of may have to wait for a process that can read it, other jobs go on, and
// nobody sends requests without end.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	const later = `{"v":2,"job":["bad"],"id":7,"nominal":"soon","attempt":"1","inARow":[1],"by":{}}`
	skipped := []string{"00:01:00"}
	goesOn := []string{"00:01:00", "00:02:00", "00:03:00", "00:04:00"}
	for name, kind := range map[string]struct {
		key      string // below the group; J stands for the job's digest
		expected []string
		again    bool // it goes on when the value is gone
	}{
		"mark":           {"high/J", skipped, true},
		"ready":          {"now/ready/J/1-of-a-later-version", skipped, true},
		"run":            {"now/run/J/1-of-a-later-version", skipped, true},
		"paused":         {"now/paused/J", skipped, true},
		"reset":          {"now/reset/J", skipped, true},
		"cancel":         {"now/cancel/J", goesOn, true},
		"ask":            {"now/ask/J/1", goesOn, true},
		"withdraw":       {"now/withdraw/J", goesOn, true},
		"slot":           {"now/slot/J/0", goesOn, true},
		"stuck":          {"now/stuck/J/1-of-a-later-version", goesOn, true},
		"failures":       {"fail/J", goesOn, true},
		"past":           {"past/J/00000000000000000001-1", goesOn, true},
		"unknown":        {"now/of-a-later-version/J/1", goesOn, true},
		"spec":           {"spec/J", goesOn, true}, // an owner that knows the job reads it when it takes over
		"definition":     {"def/J", goesOn, true},
		"defined":        {"now/defined/J", goesOn, true},
		"backfill waits": {"now/ready/J.backfill/1-of-a-later-version", goesOn, true},
		"backfill runs":  {"now/run/J.backfill/1-of-a-later-version", goesOn, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "bad", Schedule: minutely, PauseOnFailure: 3}, 0)
				f.do(sched.Job{Name: "good", Schedule: minutely}, 0)
				for range 2 {
					f.start(0)
				}
				f.until("00:01:30")
				etcdKey, before := f.keyOf("bad", kind.key), ""
				if resp, err := f.etcd.Get(context.Background(), etcdKey); err != nil {
					t.Fatal(err)
				} else if len(resp.Kvs) > 0 {
					before = string(resp.Kvs[0].Value)
				}
				_, err := f.etcd.Put(context.Background(), etcdKey, later)
				noErr(t, err)
				sent := f.requests()
				f.until("00:04:30")
				if n := f.requests() - sent; n == 0 || n > 600 {
					t.Errorf("%d requests in three minutes", n)
				}
				f.ledger.want(t, "good", goesOn...)
				f.ledger.want(t, "bad", kind.expected...)
				// What operators ask, of this job and of all, is answered as far as
				// it can be read, or with an error.
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				_, _ = f.console().Inspect(ctx, "bad")
				if _, err := f.console().Inspect(ctx, "good"); err != nil {
					t.Errorf("inspecting the other job: %v", err)
				}
				for _, err := range f.console().History(ctx, "bad") {
					if err != nil && !strings.Contains(err.Error(), "newer") {
						t.Errorf("history: %v", err)
					}
				}
				if before == "" || name == "mark" { // which may not go back
					_, err = f.etcd.Delete(context.Background(), etcdKey)
				} else {
					_, err = f.etcd.Put(context.Background(), etcdKey, before)
				}
				noErr(t, err)
				ran := len(f.ledger.all("bad"))
				f.until("00:07:30")
				if n := len(f.ledger.all("bad")) - ran; n < 3 && kind.again {
					t.Errorf("%d ticks in the three minutes after it was gone", n)
				}
			})
		})
	}
}

// keyOf returns a key of the job's in etcd; J stands for its digest.
func (f *fleet) keyOf(job, key string) string {
	f.Helper()
	for _, k := range f.under("/spec/") {
		if strings.Contains(k.value, `"job":"`+job+`"`) {
			root, digest, _ := strings.Cut(k.name, "spec/")
			return root + strings.ReplaceAll(key, "J", digest)
		}
	}
	f.Fatalf("no job %s", job)
	return ""
}

// requests counts what the processes have sent through their claims, and all
// revisions that anybody has made.
func (f *fleet) requests() int64 {
	f.Helper()
	resp, err := f.etcd.Get(context.Background(), "x", clientv3.WithCountOnly())
	if err != nil {
		f.Fatal(err)
	}
	n := resp.Header.Revision
	for _, node := range f.nodes {
		n += node.claims.Stats().Requests
	}
	return n
}
