package durable

import (
	"slices"
	"testing"

	"github.com/etcdclaims/claims/internal/audit"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFalls(t *testing.T) {
	t.Parallel()
	last := Last{Revision: 100, Of: map[Kind]int64{Queues: 2, QueuePauses: 1, DeadLetters: 9, Jobs: 3, JobPauses: 2}}
	with := func(changed map[Kind]int64) map[Kind]int64 {
		all := map[Kind]int64{Queues: 2, QueuePauses: 1, DeadLetters: 9, Jobs: 3, JobPauses: 2}
		for kind, n := range changed {
			all[kind] = n
		}
		return all
	}
	for name, tt := range map[string]struct {
		now   Counts
		since []audit.Record
		want  []Fall
	}{
		"the same":         {now: Counts{Of: with(nil)}},
		"more":             {now: Counts{Of: with(map[Kind]int64{Queues: 3, DeadLetters: 10, Groups: 1})}},
		"fewer":            {now: Counts{Of: with(map[Kind]int64{Queues: 1, QueuePauses: 0})}, want: []Fall{{Queues, 2, 1}, {QueuePauses, 1, 0}}},
		"resumed":          {now: Counts{Of: with(map[Kind]int64{QueuePauses: 0})}, since: []audit.Record{{Verb: "queue resume", Revision: 101}}},
		"resumed earlier":  {now: Counts{Of: with(map[Kind]int64{QueuePauses: 0})}, since: []audit.Record{{Verb: "queue resume", Revision: 99}}, want: []Fall{{QueuePauses, 1, 0}}},
		"another verb":     {now: Counts{Of: with(map[Kind]int64{Jobs: 2})}, since: []audit.Record{{Verb: "sched pause", Revision: 101}}, want: []Fall{{Jobs, 3, 2}}},
		"some cancelled":   {now: Counts{Of: with(map[Kind]int64{DeadLetters: 4, JobPauses: 0})}},
		"most are missing": {now: Counts{Of: with(map[Kind]int64{DeadLetters: 3})}, want: []Fall{{DeadLetters, 9, 3}}},
		"trimmed":          {now: Counts{Of: with(map[Kind]int64{DeadLetters: 0}), Trimmed: 101}},
		"trimmed earlier":  {now: Counts{Of: with(map[Kind]int64{DeadLetters: 0}), Trimmed: 99}, want: []Fall{{DeadLetters, 9, 0}}},
	} {
		if got := last.Falls(tt.now, tt.since); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	if got := (Last{}).Falls(Counts{}, nil); got != nil {
		t.Errorf("when nobody has looked: %+v", got)
	}
}

func TestLastKey(t *testing.T) {
	t.Parallel()
	if got := LastKey("/etcdclaims/"); got != "/etcdclaims.counts" {
		t.Error(got)
	}
}
