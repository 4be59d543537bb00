package main

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// story is a history in which w0.1 owned job-0 and w1.1 waited for it. w0.1 dies
// at second 100; times are seconds from then on.
func story(next float64) (*ownership, []*fault) {
	h := newOwnership()
	h.hear(second(-10), 1, putEvent(10, ownPrefix+"job-0", `{"owner":"w0.1"}`))
	h.hear(second(-5), 1, putEvent(11, waitPrefix+keyspace.Digest("job-0")+"/1", `{"owner":"w1.1"}`))
	if next > 0 {
		h.hear(second(next), 1,
			deleteEvent(19, ownPrefix+"job-0"),
			deleteEvent(19, livePrefix+"i/live/1"),
			putEvent(20, ownPrefix+"job-0", `{"owner":"w1.1"}`))
	}
	return h, []*fault{{kind: killWorker, worker: "w0.1", from: second(0), to: second(0)}}
}

func putEvent(rev int64, key, value string) *clientv3.Event {
	return &clientv3.Event{Type: clientv3.EventTypePut, Kv: &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: rev}}
}

func deleteEvent(rev int64, key string) *clientv3.Event {
	return &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: rev}}
}

func second(s float64) time.Time {
	return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second)))
}

func TestPickups(t *testing.T) {
	const ttl = 5 * time.Second
	during := func(kind faultKind, worker string, from, to float64) *fault {
		return &fault{kind: kind, worker: worker, from: second(from), to: second(to)}
	}
	tests := []struct {
		name string
		next float64 // when the next owner came, 0 for never; the run ends at 60
		raft []float64
		more []*fault
		want circumstances
		late bool
	}{
		{"OK", 5.5, nil, nil, nothingElse, false},
		{"late", 6.5, nil, nil, nothingElse, true},
		{"never", 0, nil, nil, nothingElse, true},
		{"OK a new leader", 13, []float64{1}, nil, leaderLost, false},
		{"late for all of a new leader", 15, []float64{1}, nil, leaderLost, true},
		{"OK a leader that is stopped", 13, nil, []*fault{during(stopLeader, "", 1, 8)}, leaderLost, false},
		{
			"OK a leader that is stopped, and a deaf watch", 15.5, nil,
			[]*fault{during(stopLeader, "", 1, 8), during(killLeader, "", 2, 2)},
			leaderLost, false,
		},
		{"late for a leader that is stopped", 16, nil, []*fault{during(stopLeader, "", 1, 8)}, leaderLost, true},
		{"late for a leader that is killed", 15, nil, []*fault{during(killLeader, "", 1, 1)}, leaderLost, true},
		{"OK two new leaders", 20, []float64{1, 7}, nil, disturbed, false},
		{"OK a compaction excuses nothing", 6.5, nil, []*fault{during(compactAll, "", 1, 1)}, nothingElse, true},
		{"OK a worker that does not wait excuses nothing", 6.5, nil, []*fault{during(killWorker, "w2.1", 1, 1)}, nothingElse, true},
		{"OK a follower", 6.5, nil, []*fault{during(stopFollower, "", 1, 3)}, disturbed, false},
		{"late after a follower", 18, nil, []*fault{during(stopFollower, "", 1, 3)}, disturbed, true},
		{"OK links of the waiter", 20, nil, []*fault{during(cutLinks, "w1.1", -1, 7)}, disturbed, false},
		{"OK links of the dead, kept by those before it", 10, nil, []*fault{during(cutLinks, "w0.0", -1, 2)}, disturbed, false},
		{
			"OK a fault that could not be made, or not wholly", 6.5, nil,
			[]*fault{{kind: stopFollower, from: second(1), to: second(2), failed: true}},
			disturbed, false,
		},
		{"a fault that was over excuses nothing", 6.5, nil, []*fault{during(cutLinks, "w1.1", -9, -5)}, nothingElse, true},
		{"a fault after all was too late", 20, nil, []*fault{during(cutLinks, "w1.1", 19, 20)}, nothingElse, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, faults := story(tt.next)
			for i, at := range tt.raft {
				h.hear(second(at), uint64(i+2))
			}
			found := findPickups(h, append(faults, tt.more...), ttl, second(60))
			if len(found) != 1 {
				t.Fatalf("found %v", found)
			}
			if p := found[0]; p.late() != tt.late || p.what != tt.want || p.never != (tt.next == 0) {
				t.Errorf("%v: late %v, %v; want %v, %v", p, p.late(), p.what, tt.late, tt.want)
			}
		})
	}
}

// TestStalled finds a pick-up late, or not, by the stalls of the observer.
func TestStalled(t *testing.T) {
	f := func(name string, late bool, stalls ...stall) {
		t.Helper()
		h, faults := story(6.5) // half a second late
		for _, s := range stalls {
			h.stalls.note(s.from, s.to)
		}
		found := findPickups(h, faults, 5*time.Second, second(60))
		if len(found) != 1 || found[0].late() != late {
			t.Errorf("%s: %v; want late %v", name, found, late)
		}
	}
	f("one that is too short", true, stall{second(1), second(1.4)})
	f("one that is long enough", false, stall{second(1), second(1.6)})
	f("two", false, stall{second(1), second(1.3)}, stall{second(5), second(5.3)})
	f("many that are none", true, slices.Repeat([]stall{{second(1), second(1.04)}}, 100)...)
	f("one before the death", true, stall{second(-9), second(0.1)})
	f("one after the pick-up", true, stall{second(6.4), second(20)})
	f("until the pick-up", false, stall{second(5.9), second(6.6)})
}

func TestPickupsNotMeasured(t *testing.T) {
	f := func(name string, change func(h *ownership, faults []*fault)) {
		t.Helper()
		h, faults := story(5.5)
		change(h, faults)
		if found := findPickups(h, faults, 5*time.Second, second(60)); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
	f("nobody waited", func(h *ownership, _ []*fault) { clear(h.places) })
	f("the waiter left", func(h *ownership, _ []*fault) { h.places[keyspace.Digest("job-0")][0].to = second(2) })
	f("the waiter came later", func(h *ownership, _ []*fault) { h.places[keyspace.Digest("job-0")][0].from = second(2) })
	f("the key was free before", func(h *ownership, _ []*fault) { h.terms["job-0"][0].ended = second(-1) })
	f("the kill failed", func(_ *ownership, faults []*fault) { faults[0].failed = true })
	f("it was stopped, and went on", func(_ *ownership, faults []*fault) {
		faults[0].kind, faults[0].to = stopWorker, second(5)
	})
}

// TestOwnership reports events twice and out of order, as watches of several members do.
func TestOwnership(t *testing.T) {
	h, _ := story(5.5)
	h.hear(second(9), 1, putEvent(10, ownPrefix+"job-0", `{"owner":"w0.1"}`))
	if terms := h.terms["job-0"]; len(terms) != 2 || !terms[0].lapsed || terms[0].end != 19 || terms[1].lapsed {
		t.Errorf("terms %+v", terms)
	}
	if all, its := h.owned(""), h.owned("w1.1"); len(all) != 1 || len(its) != 1 || len(h.owned("w0.1")) > 0 {
		t.Errorf("w1.1 owns %v of %v", its, all)
	}
	if h.owner("job-0") != "w1.1" || h.owner("job-1") != "" || h.seen() != 20 {
		t.Errorf("owners %q, %q at %d", h.owner("job-0"), h.owner("job-1"), h.seen())
	}
	if !h.begunSince(second(5), "job-0") || h.begunSince(second(6), "job-0") || h.begunSince(second(0), "job-1") {
		t.Error("when terms began")
	}
}
