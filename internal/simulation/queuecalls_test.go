package simulation

import (
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/history"
)

// What a process was told of an item is a violation if etcd shows that it was not so.
func TestCallsOfAQueue(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	at := func(after ...time.Duration) (all []time.Time) {
		for _, d := range after {
			all = append(all, began.Add(d))
		}
		return all
	}
	for name, tt := range map[string]struct {
		call     queueCall
		undone   []time.Time // cancelled or redriven
		returned bool        // the lease's item was given back
		lie      bool
	}{
		"completed":                        {call: queueCall{verb: "complete", outcome: "done", applied: 1}},
		"completed, but not in etcd":       {call: queueCall{verb: "complete", outcome: "done"}, lie: true},
		"not completed, but in etcd":       {call: queueCall{verb: "complete", outcome: "refused", applied: 1}, lie: true},
		"cancelled":                        {call: queueCall{verb: "cancel", outcome: "done"}, undone: at(time.Second)},
		"cancelled before the call only":   {call: queueCall{verb: "cancel", outcome: "done"}, undone: at(-time.Second), lie: true},
		"cancelled by a later call only":   {call: queueCall{verb: "cancel", outcome: "done"}, undone: at(3 * time.Second), lie: true},
		"cancelled then, and again":        {call: queueCall{verb: "cancel", outcome: "done"}, undone: at(time.Second, time.Minute)},
		"redriven, but not in etcd":        {call: queueCall{verb: "redrive", outcome: "done"}, lie: true},
		"not redriven":                     {call: queueCall{verb: "redrive", outcome: "refused"}},
		"given back":                       {call: queueCall{verb: "snooze", outcome: "done"}, returned: true},
		"given back, but not in etcd":      {call: queueCall{verb: "release", outcome: "done"}, lie: true},
		"unknown whether it is given back": {call: queueCall{verb: "release", outcome: "unknown"}},
		"not enqueued again, but in etcd":  {call: queueCall{verb: "enqueue again", outcome: "refused", applied: 1}, lie: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{history: history.New()}
			lease := leaseName{"i", 7}
			c := tt.call
			c.p, c.id, c.fence, c.began, c.ended, c.why = &process{name: "p"}, "i", 7, began, began.Add(2*time.Second), errors.New("test")
			qs := &queueing{w: w, calls: []*queueCall{&c}, leases: map[leaseName]*queueLease{lease: {p: c.p, seen: true}}}
			j := &queueJudge{
				r: &replay{world: w, t: &trace{w: w}}, qs: qs,
				undone: map[string][]time.Time{c.verb + " i": tt.undone}, returned: map[leaseName]bool{lease: tt.returned},
			}
			if j.calls(); (len(w.faults) > 0) != tt.lie {
				t.Errorf("violations: %q", w.faults)
			}
		})
	}
}
