package work

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// What a record means for a caller that finds its key free.
func TestWhatARecordMeans(t *testing.T) {
	t.Parallel()
	all := []State{StateDone, StateDead, StateFailed}
	for _, tt := range []struct {
		record Record
		again  []State
		over   bool
	}{
		{Record{State: StateFree}, nil, false},
		{Record{State: StateClaimed}, nil, false},
		{Record{State: StateDone}, nil, true},
		{Record{State: StateDone}, all, false},
		{Record{State: StateDone}, []State{StateDead}, true},
		{Record{State: StateDead}, nil, true},
		{Record{State: StateDead}, []State{StateDead}, false},
		{Record{State: StateFailed, NotBefore: noon}, nil, false},
		{Record{State: StateFailed, NotBefore: noon.Add(1)}, nil, true},
		{Record{State: StateFailed, NotBefore: noon.Add(1)}, []State{StateFailed}, false},
	} {
		if over := tt.record.isOver(noon, tt.again); over != tt.over {
			t.Errorf("%+v, again %v: over %v", tt.record, tt.again, over)
		}
	}
	for _, tt := range []struct {
		record Record
		limit  int
		says   string
	}{
		{Record{Attempt: 1}, 5, ""},
		{Record{Attempt: 4}, 5, ""},
		{Record{Attempt: 5}, 5, "the last of 5 attempts"},
		{Record{Attempt: 6}, 5, "the last of 5 attempts"},
		{Record{Attempt: 6, Earlier: 2}, 5, ""},
		{Record{Attempt: 100}, -1, ""},
		{Record{Attempt: 1, AtMostOnce: true}, -1, "at most once"},
	} {
		if why := tt.record.buries(tt.limit); (why == "") != (tt.says == "") || !strings.Contains(why, tt.says) {
			t.Errorf("%+v, limit %d: %q", tt.record, tt.limit, why)
		}
	}
}

// The attempt that follows a record.
func TestBegunRecord(t *testing.T) {
	t.Parallel()
	failed := Record{State: StateFailed, Attempt: 3, Earlier: 1, Error: "x", Stack: "s", Note: "n", Fence: 7, Claim: "c"}
	for _, tt := range []struct {
		prev *Record
		anew bool
		want Record
	}{
		{nil, false, Record{State: StateClaimed, Attempt: 1}},
		{&failed, false, Record{State: StateClaimed, Attempt: 4, Earlier: 1, Error: "x", Stack: "s"}},
		{&failed, true, Record{State: StateClaimed, Attempt: 4, Earlier: 3, Error: "x", Stack: "s"}},
	} {
		if got := begun(tt.prev, tt.anew); got != tt.want {
			t.Errorf("after %+v, anew %v: %+v", tt.prev, tt.anew, got)
		}
	}
}

// What becomes of an attempt, and of an orphan.
func TestWhatBecomesOfARecord(t *testing.T) {
	t.Parallel()
	cfg := Config{MaxAttempts: 3, Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }}
	boom := errors.New("boom")
	attempt := func(n int) Record { return Record{State: StateClaimed, Attempt: n, Key: "k", Note: "n"} }
	for name, tt := range map[string]struct {
		got, want Record
	}{
		"first":     {attempt(1).failed(boom, cfg, noon), Record{State: StateFailed, Attempt: 1, Ended: noon, NotBefore: noon.Add(time.Minute), Error: "boom"}},
		"no cause":  {attempt(1).failed(nil, cfg, noon), Record{State: StateFailed, Attempt: 1, Ended: noon, NotBefore: noon.Add(time.Minute), Error: "failed without a cause"}},
		"second":    {attempt(2).failed(boom, cfg, noon), Record{State: StateFailed, Attempt: 2, Ended: noon, NotBefore: noon.Add(2 * time.Minute), Error: "boom"}},
		"last":      {attempt(3).failed(boom, cfg, noon), Record{State: StateDead, Attempt: 3, Ended: noon, Error: "boom"}},
		"permanent": {attempt(1).failed(fmt.Errorf("x: %w", etcdclaims.Permanent(boom)), cfg, noon), Record{State: StateDead, Attempt: 1, Ended: noon, Error: "x: boom"}},
		"delay":     {attempt(1).failed(etcdclaims.RetryAfter(boom, time.Hour), cfg, noon), Record{State: StateFailed, Attempt: 1, Ended: noon, NotBefore: noon.Add(time.Hour), Error: "boom"}},
		"panic": {
			attempt(1).failed(&panicError{Value: "p", Stack: []byte("s")}, cfg, noon),
			Record{State: StateFailed, Attempt: 1, Ended: noon, NotBefore: noon.Add(time.Minute), Error: "panic: p", Stack: "s"},
		},
		"buried":  {attempt(2).buried("gone", noon), Record{State: StateDead, Attempt: 2, Ended: noon, Error: "gone"}},
		"retried": {Record{State: StateDead, Attempt: 3, Key: "k", Note: "n", Ended: noon, Error: "boom"}.retried(noon.Add(1)), Record{State: StateFree, Attempt: 3, Earlier: 3, Ended: noon, Error: "boom"}},
		"retried orphan": {
			Record{State: StateOrphaned, Attempt: 3, Key: "k", Note: "n"}.retried(noon),
			Record{State: StateFree, Attempt: 3, Earlier: 3, Ended: noon, Error: "its owner is gone"},
		},
	} {
		tt.want.Key, tt.want.Note = "k", "n"
		if tt.got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, tt.got, tt.want)
		}
	}
	if _, none := attempt(1).givenBack(Record{}, noon); !none {
		t.Error("a first attempt that is given back leaves a record")
	}
	prev := Record{State: StateFailed, Attempt: 1, Error: "boom", Stack: "s"}
	if r, none := attempt(2).givenBack(prev, noon); none || r.State != StateFree || r.Attempt != 1 || r.Error != "boom" || r.Stack != "s" || !r.Ended.Equal(noon) {
		t.Errorf("given back: %+v, %v", r, none)
	}
}
