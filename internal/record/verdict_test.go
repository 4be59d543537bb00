package record

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// What a record means for a caller that finds its key free.
func TestWhatARecordMeans(t *testing.T) {
	t.Parallel()
	all := []State{Done, Dead, Failed}
	for _, tt := range []struct {
		record Record
		again  []State
		over   bool
	}{
		{Record{State: Free}, nil, false},
		{Record{State: Claimed}, nil, false},
		{Record{State: Done}, nil, true},
		{Record{State: Done}, all, false},
		{Record{State: Done}, []State{Dead}, true},
		{Record{State: Dead}, nil, true},
		{Record{State: Dead}, []State{Dead}, false},
		{Record{State: Failed, NotBefore: noon}, nil, false},
		{Record{State: Failed, NotBefore: noon.Add(1)}, nil, true},
		{Record{State: Failed, NotBefore: noon.Add(1)}, []State{Failed}, false},
	} {
		if over := tt.record.IsOver(noon, tt.again); over != tt.over {
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
	failed := Record{State: Failed, Attempt: 3, Earlier: 1, Error: "x", Stack: "s", Note: "n", Fence: 7, Claim: "c"}
	for _, tt := range []struct {
		prev *Record
		anew bool
		want Record
	}{
		{nil, false, Record{State: Claimed, Attempt: 1}},
		{&failed, false, Record{State: Claimed, Attempt: 4, Earlier: 1, Error: "x", Stack: "s"}},
		{&failed, true, Record{State: Claimed, Attempt: 4, Earlier: 3, Error: "x", Stack: "s"}},
	} {
		if got := begun(tt.prev, tt.anew); got != tt.want {
			t.Errorf("after %+v, anew %v: %+v", tt.prev, tt.anew, got)
		}
	}
}

// What becomes of an attempt, and of an orphan.
func TestWhatBecomesOfARecord(t *testing.T) {
	t.Parallel()
	boom := Failure{Error: "boom", Limit: 3, After: func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute }}
	permanent, panicked := boom, boom
	permanent.Permanent, panicked.Stack = true, "s"
	attempt := func(n int) Record { return Record{State: Claimed, Attempt: n, Key: "k", Note: "n"} }
	for name, tt := range map[string]struct {
		got, want Record
	}{
		"first":     {attempt(1).Failed(boom, noon), Record{State: Failed, Attempt: 1, Ended: noon, NotBefore: noon.Add(time.Minute), Error: "boom"}},
		"second":    {attempt(2).Failed(boom, noon), Record{State: Failed, Attempt: 2, Ended: noon, NotBefore: noon.Add(2 * time.Minute), Error: "boom"}},
		"last":      {attempt(3).Failed(boom, noon), Record{State: Dead, Attempt: 3, Ended: noon, Error: "boom"}},
		"permanent": {attempt(1).Failed(permanent, noon), Record{State: Dead, Attempt: 1, Ended: noon, Error: "boom"}},
		"panic": {
			attempt(1).Failed(panicked, noon),
			Record{State: Failed, Attempt: 1, Ended: noon, NotBefore: noon.Add(time.Minute), Error: "boom", Stack: "s"},
		},
		"done":    {attempt(2).Done("r", noon), Record{State: Done, Attempt: 2, Ended: noon, Result: "r"}},
		"buried":  {attempt(2).Buried("gone", noon), Record{State: Dead, Attempt: 2, Ended: noon, Error: "gone"}},
		"retried": {Record{State: Dead, Attempt: 3, Key: "k", Note: "n", Ended: noon, Error: "boom"}.Retried(noon.Add(1)), Record{State: Free, Attempt: 3, Earlier: 3, Ended: noon, Error: "boom"}},
		"retried orphan": {
			Record{State: Orphaned, Attempt: 3, Key: "k", Note: "n"}.Retried(noon),
			Record{State: Free, Attempt: 3, Earlier: 3, Ended: noon, Error: "its owner is gone"},
		},
	} {
		tt.want.Key, tt.want.Note = "k", "n"
		if tt.got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, tt.got, tt.want)
		}
	}
	if _, none := attempt(1).GivenBack(Record{}, noon); !none {
		t.Error("a first attempt that is given back leaves a record")
	}
	prev := Record{State: Failed, Attempt: 1, Error: "boom", Stack: "s"}
	if r, none := attempt(2).GivenBack(prev, noon); none || r.State != Free || r.Attempt != 1 || r.Error != "boom" || r.Stack != "s" || !r.Ended.Equal(noon) {
		t.Errorf("given back: %+v, %v", r, none)
	}
}
