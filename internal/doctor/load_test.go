package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A key whose holders die again and again is flapping. One that is released each time is not.
func TestFlapping(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	e.Commands.Claimctl = "claimctl"
	ctx := t.Context()
	put := func(key, value string, lease clientv3.LeaseID) {
		t.Helper()
		if _, err := etcd.Put(ctx, key, value, clientv3.WithLease(lease)); err != nil {
			t.Fatal(err)
		}
	}
	term := func(key, owner string, since time.Time) (end func()) {
		t.Helper()
		lease, err := etcd.Grant(ctx, 600)
		if err != nil {
			t.Fatal(err)
		}
		put(e.Claims.Prefix()+"session/"+owner+"/live/1", `{"v":1}`, lease.ID)
		put(e.Claims.OwnKey(key), fmt.Sprintf(`{"v":1,"owner":%q,"since":%q}`, owner, explain.Stamp(since)), lease.ID)
		return func() {
			if _, err := etcd.Revoke(ctx, lease.ID); err != nil {
				t.Error(err)
			}
		}
	}
	begin := time.Now().Add(-time.Minute).Truncate(time.Second)
	e.flapping(ctx)
	e.has(t, OK, "flapping", "no key flaps in the last ")
	for i := range 5 { // as it did yesterday, and was kept since
		term("leader/mailer", "api-9", begin.Add(-24*time.Hour+time.Duration(i)*12*time.Second))()
	}
	e.Findings = nil
	e.flapping(ctx)
	e.has(t, OK, "flapping", "no key flaps in the last ")
	for i := range 6 {
		owner := fmt.Sprint("api-", i%2)
		term("leader/mailer", owner, begin.Add(time.Duration(i)*12*time.Second))()
		claim, err := e.Claims.TryAcquire(ctx, "lock")
		if err != nil {
			t.Fatal(err)
		}
		if err := claim.Release(ctx); err != nil {
			t.Fatal(err)
		}
		put(e.Claims.OwnKey("newer"), `{"v":99}`, clientv3.NoLease)
	}
	e.Findings = nil
	e.flapping(ctx)
	e.has(t, Warning, "flapping", "holders die or are cut off again and again: leader/mailer (5.0 terms a minute, api-0, api-1)")
	if f := e.Findings[0]; strings.Contains(f.Detail, "lock") || !slices.Equal(f.Commands, []string{"claimctl history --limit 20 leader/mailer"}) {
		t.Errorf("%+v", f)
	}
	now, err := etcd.Get(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Compact(ctx, now.Header.Revision); err != nil {
		t.Fatal(err)
	}
	e.Findings = nil
	e.flapping(ctx)
	e.has(t, OK, "flapping", "no key flaps in the last 1 revision")
}

func TestFlaps(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		n, lapsed int
		within    time.Duration
		want      bool
	}{
		"a crash loop":               {6, 5, time.Minute, true},
		"all at once":                {6, 5, 0, true},
		"two fail-overs":             {3, 2, time.Minute, false},
		"deployments of a day":       {12, 11, 24 * time.Hour, false},
		"a lock":                     {200, 0, time.Minute, false},
		"a lock, two processes died": {200, 2, time.Minute, false},
	} {
		is := terms{n: tt.n, lapsed: tt.lapsed, first: at, last: at.Add(tt.within)}
		if got := is.flaps(is.last); got != tt.want {
			t.Errorf("%s: %t, %.1f a minute", name, got, is.perMinute())
		}
		if is.flaps(is.last.Add(time.Minute + time.Second)) {
			t.Errorf("%s: the last term is kept", name)
		}
	}
}

// What waits is a finding once it is old, and sooner if no worker lives.
func TestBacklog(t *testing.T) {
	t.Parallel()
	e, _ := examine(t)
	e.Commands.Claimctl = "claimctl"
	ctx := t.Context()
	q, err := queue.New(e.Claims, queue.Config{Name: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := q.Enqueue(ctx, queue.NewItem([]byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	judge := func(after time.Duration) (stats queue.Stats) {
		t.Helper()
		stats, by, err := e.readQueue(ctx, "mail")
		if err != nil {
			t.Fatal(err)
		}
		e.Findings = nil
		e.queue("mail", stats, by, time.Now().Add(after))
		return stats
	}
	judge(0)
	e.hasNone(t, "queues")
	judge(20 * time.Second)
	e.has(t, Note, "queues", "no worker lives")
	judge(2 * time.Minute)
	e.has(t, Warning, "queues", `"mail": 3 items wait, the oldest for 2m0s, and no worker lives`)
	batch, err := q.TryClaim(ctx, 1)
	if err != nil || len(batch.Deliveries) != 1 {
		t.Fatal(batch, err)
	}
	judge(2 * time.Minute)
	e.hasNone(t, "queues")
	judge(11 * time.Minute)
	e.has(t, Note, "queues", `"mail": 2 items wait, the oldest for 11m0s; 1 worker lives, and 1 item is taken`)
	if err := q.Pause(ctx, "INC-311"); err != nil {
		t.Fatal(err)
	}
	judge(11 * time.Minute)
	if len(e.Findings) != 1 {
		t.Errorf("%+v", e.Findings)
	}
	e.has(t, Note, "queues", `: INC-311; 2 items wait`)
	stats := judge(0)
	stats.Paused.At = time.Now().Add(-25 * time.Hour)
	e.Findings = nil
	e.queue("mail", stats, workers{}, time.Now())
	e.has(t, Warning, "queues", `"mail" is paused by `)
	if f := e.Findings[0]; !slices.Equal(f.Commands, []string{"claimctl queue resume mail"}) {
		t.Errorf("%+v", f)
	}
}

// A pause that ends by itself within the day is no finding: nobody has to think of it.
func TestPauseThatEndsSoon(t *testing.T) {
	now := time.Now()
	for until, want := range map[time.Time]int{{}: 1, now.Add(time.Hour): 0, now.Add(23 * time.Hour): 0, now.Add(25 * time.Hour): 1} {
		for _, since := range []time.Time{now, now.Add(-30 * time.Hour)} {
			e := &Examination{}
			e.queue("mail", queue.Stats{Ready: 9, OldestReady: since, Paused: queue.Pausing{By: "olga", At: since, Until: until}}, workers{}, now)
			if len(e.Findings) != want {
				t.Errorf("queue until %v: %+v", until, e.Findings)
			}
			e.Findings = nil
			e.job("billing", sched.JobInfo{Job: "invoices", Paused: &sched.Pause{By: "olga", At: since, Until: until}}, true)
			if len(e.Findings) != want {
				t.Errorf("job until %v: %+v", until, e.Findings)
			}
		}
	}
}

// Of many queues that cannot be read, one shows what is wrong.
func TestQueuesUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, host := examineVirtually(t)
		for i := range 20 {
			q, err := queue.New(e.Claims, queue.Config{Name: fmt.Sprint("q", i)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Enqueue(t.Context(), queue.NewItem([]byte("x"))); err != nil {
				t.Fatal(err)
			}
		}
		e.queues(t.Context())
		e.has(t, OK, "queues", "20, without dead letters and long pauses")
		host.Inject(claimtest.Fault{Times: -1, DelayReply: 20 * time.Millisecond})
		e.Findings = nil
		ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
		defer cancel()
		e.queues(ctx)
		for _, f := range e.Findings {
			if f.trouble == untroubled && f.Level != Note {
				t.Errorf("%+v", f)
			}
		}
		if len(e.Findings) != 1 {
			t.Errorf("%+v", e.Findings)
		}
	})
}

// Leases and keys of other programs are counted, and the claims' own are told from them.
func TestOthers(t *testing.T) {
	t.Parallel()
	e, etcd := examine(t)
	e.Commands.Etcdctl = "etcdctl"
	ctx := t.Context()
	if _, err := e.Claims.TryAcquire(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	e.put(t, e.Claims.Prefix()+"work/x", `{"v":99}`)
	e.leases(ctx)
	e.has(t, OK, "leases", "2, none of the 1 that were read is of another program")
	for i := range 3 {
		e.put(t, fmt.Sprint("/registry/events/", i), strings.Repeat("x", 1<<20))
	}
	if _, err := etcd.Grant(ctx, 3600); err != nil {
		t.Fatal(err)
	}
	e.Findings = nil
	e.leases(ctx)
	e.prefixes(ctx)
	e.has(t, Note, "leases",
		"3 of the 5 that were read, of 6, are of other programs, with TTLs from 10m0s to 10m0s; keys below /registry/; 1 without keys")
	e.has(t, OK, "prefixes", "/registry/ 3 keys, about 3 MiB, ")
	if f := e.Findings[0]; !slices.Equal(f.Commands, []string{"etcdctl lease list"}) {
		t.Errorf("%+v", f)
	}
	e.Findings = nil
	e.judgeLeases(9, 2, 8, 0, []lent{{ttl: time.Minute, of: "a/"}})
	e.has(t, Note, "leases", "1 of the 2 that were read, of 9, are of other programs, with TTLs from 1m0s to 1m0s; keys below a/; the others were not read")
	for bare, l := range map[int]Level{3: OK, 51: Note} { // claims leave a few
		e.Findings = nil
		e.judgeLeases(60, 60, 60, bare, nil)
		e.has(t, l, "leases", fmt.Sprintf("60, none of the 60 that were read is of another program; %d without keys", bare))
	}
	e.judgePrefixes(nil, 0)
	e.has(t, OK, "prefixes", "no keys, without earlier revisions")
}

func TestBeginning(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"/registry/pods/a": "/registry/", "a/b/c": "a/", "/a": "/a", "a": "a", "/": "/", "": ""} {
		if got := beginning(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// A caller that has come a moment ago is not called deaf.
func TestGraceOfCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := examineVirtually(t)
		e.waits(t, "k", "new", time.Now().Add(-time.Second))
		e.claims(t.Context())
		e.has(t, OK, "lines", "1 in line")
		time.Sleep(grace)
		e.Findings = nil
		e.claims(t.Context())
		e.has(t, Warning, "lines", "new is first in line for a key that is free")
	})
}
