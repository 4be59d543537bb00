package contract

import (
	"errors"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

var attemptCases = []Case{
	{"an error says when to try again", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		job := t.begin(a, "k")
		t.ok(failing(t.ctx, job, etcdclaims.RetryAfter(errors.New("busy"), time.Hour)))
		_, err := t.works(b).TryBegin(t.ctx, "k")
		r := t.record(err, work.ErrBackoff)
		if d := time.Until(r.NotBefore); d < 50*time.Minute || d > 70*time.Minute {
			t.Errorf("it waits for %v", d)
		}
		job = t.begin(a, "now")
		t.ok(failing(t.ctx, job, etcdclaims.RetryAfter(errors.New("busy"), 0)))
		time.Sleep(10 * time.Millisecond)
		t.begin(b, "now")
	}},

	{"work that fails for good is dead", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		t.ok(failing(t.ctx, t.begin(a, "k"), etcdclaims.Permanent(errors.New("no such customer"))))
		_, err := t.works(b).TryBegin(t.ctx, "k")
		if r := t.record(err, work.ErrDead); r.Attempt != 1 || !strings.Contains(r.Error, "no such customer") {
			t.Errorf("the record is %+v", r)
		}
		_, err = t.works(b).Begin(t.ctx, "k")
		t.record(err, work.ErrDead)
	}},

	{"work that fails too often is dead", func(t *trial) {
		a, b := t.workPair(work.Config{MaxAttempts: 3, Backoff: func(int) time.Duration { return 0 }})
		for attempt := 1; attempt <= 3; attempt++ {
			job := t.begin([]*etcdclaims.Client{a, b}[attempt%2], "k")
			if job.Attempt() != attempt {
				t.Fatalf("attempt %d, want %d", job.Attempt(), attempt)
			}
			t.ok(failing(t.ctx, job, errors.New("no")))
			time.Sleep(10 * time.Millisecond)
		}
		_, err := t.works(a).TryBegin(t.ctx, "k")
		if r := t.record(err, work.ErrDead); r.Attempt != 3 {
			t.Errorf("the record is %+v", r)
		}
	}},

	{"work that is given back does not count", func(t *trial) {
		a, b := t.workPair(work.Config{Backoff: func(int) time.Duration { return 0 }})
		first := t.begin(a, "k")
		t.ok(first.Release(t.ctx))
		second := t.begin(b, "k")
		if second.Attempt() != 1 {
			t.Errorf("attempt %d after one that was given back", second.Attempt())
		}
		t.rises(first.Fence(), second.Fence())
		t.ok(failing(t.ctx, second, errors.New("no")))
		time.Sleep(10 * time.Millisecond)
		t.ok(t.begin(a, "k").Release(t.ctx))
		third := t.begin(b, "k")
		if r, ok := third.Previous(); third.Attempt() != 2 || !ok || r.State != work.StateFree {
			t.Errorf("attempt %d comes after %+v, %v", third.Attempt(), r, ok)
		}
	}},
}
