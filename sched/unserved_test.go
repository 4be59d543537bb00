package sched_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Requests of ticks after another job wait for an owner that can run the job, up to a limit.
// The oldest of more are given up, with a record.
func TestRequestsThatNoOwnerServes(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		n := f.start(0)
		a := report("a")
		a.Schedule = "@every 1s"
		f.define(a)
		b := following("b", "a")
		b.Kind = "other"
		f.define(b)
		f.until("00:01:40.5")
		i := f.inspect("b")
		if i.Requests < 90 || i.Requests > 101 || i.Last != nil {
			t.Errorf("%+v", i)
		}
		x, err := f.console().Explain(t.Context(), "b", clock("00:01:30"))
		if noErr(t, err); !strings.Contains(x, `requested by a success of a, and waits for an owner that can run the job: the owner of the group has no handler of kind "other"`) {
			t.Errorf("%+v", x)
		}
		f.until("00:05:00.5")
		noErr(t, f.console().Pause(t.Context(), "a", ""))
		f.until("00:05:01.5")
		i = f.inspect("b")
		given := 0
		for _, e := range f.entries("b") {
			given += e.Missed
			if e.Outcome != sched.OutcomeMissed || !strings.Contains(e.Error, `more than 128 ticks waited for an owner that can run the job: the owner of the group has no handler of kind "other"`) {
				t.Errorf("%+v", e)
			}
		}
		if succeeded := len(f.ledger.all("a")); i.Requests+given != succeeded || i.Requests > 128 || i.Requests < 90 || given%32 != 0 {
			t.Errorf("%d requests wait, %d were given up, of %d", i.Requests, given, succeeded)
		}
		noErr(t, n.handle("other", nothingOf))
		f.until("00:06:00")
		if runs := f.ledger.all("b"); len(runs) != i.Requests || runs[0].Nominal.Add(time.Duration(i.Requests-1)*time.Second) != runs[i.Requests-1].Nominal {
			t.Errorf("%d runs of %d requests", len(runs), i.Requests)
		}
		if i = f.inspect("b"); i.Requests != 0 || i.Problem != "" {
			t.Errorf("%+v", i)
		}
	})
}

// asks stores requests of a job's ticks after another one, as processes do.
func (f *fleet) asks(job string, n int, defined int64) {
	f.Helper()
	root, _, _ := strings.Cut(f.under("/now/defined/")[0].name, "defined/")
	for i := range n {
		at := clock("00:00:00").Add(time.Duration(i) * time.Second).Format(time.RFC3339)
		text := fmt.Sprintf(`{"v":1,"job":"%s","id":"%d","by":"a","at":"%s","after":"%[3]s","defined":"%[4]d"}`, job, i, at, defined)
		_, err := f.etcd.Put(f.Context(), fmt.Sprintf("%sask/%s/%d", root, keyspace.Digest(job), i), text)
		noErr(f.T, err)
	}
}

// Requests of jobs that are gone are removed.
func TestRequestsOfRemovedJobs(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		b := f.define(following("b", "a"))
		gone := f.define(following("gone", "a"))
		f.asks("b", 5, b.Version)
		if i := f.inspect("b"); i.Requests != 5 {
			t.Errorf("%+v", i)
		}
		noErr(t, f.console().Undefine(t.Context(), "b", b.Version)) // no owner has taken it up
		if left := f.under("/now/ask/"); len(left) != 0 {
			t.Errorf("left: %v", left)
		}

		f.asks("gone", 40, gone.Version)
		f.asks("code", 200, 0) // of a process that has the job in code
		f.define(following("c", "a"))
		noErr(t, f.console().Undefine(t.Context(), "gone", gone.Version))
		f.start(0)
		f.until("00:00:30")
		of := map[string]int{}
		for _, k := range f.under("/now/ask/") {
			_, rest, _ := strings.Cut(k.value, `"job":"`)
			name, _, _ := strings.Cut(rest, `"`)
			of[name]++
		}
		if len(of) != 1 || of["code"] != 104 {
			t.Errorf("left: %v", of)
		}
		noErr(t, f.console().Forget(t.Context(), "code"))
		if left := f.under("/now/ask/"); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		wantIs(t, f.console().Forget(t.Context(), "code"), sched.ErrUnknownJob)
	})
}

// A tick that follows RunNow through several jobs is one that was asked for.
func TestManualThroughChain(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.define(report("a"))
		f.define(following("b", "a"))
		f.define(following("c", "b"))
		f.start(0)
		f.until("00:00:10")
		noErr(t, second(f.console().RunNow(t.Context(), "a")))
		f.until("00:01:30")
		for _, job := range []string{"a", "b", "c"} {
			runs := f.ledger.all(job)
			if len(runs) != 2 || !runs[0].Manual || runs[1].Manual {
				t.Errorf("%s: %v", job, runs)
			}
		}
	})
}

// puts returns how often a key was put whose name has the part.
func (f *fleet) puts(part string) (n int) {
	f.Helper()
	now, err := f.etcd.Get(f.Context(), "x")
	noErr(f.T, err)
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	for resp := range f.etcd.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		noErr(f.T, resp.Err())
		for _, ev := range resp.Events {
			if ev.Type == clientv3.EventTypePut && strings.Contains(string(ev.Kv.Key), part) {
				n++
			}
		}
		if resp.Header.Revision >= now.Header.Revision {
			break
		}
	}
	return n
}
