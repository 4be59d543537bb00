package main

import (
	"slices"
	"testing"
	"time"
)

// suspicious returns evidence without a violation: two holders were suspected, the second one
// wrongly.
func suspicious() *evidence {
	key := suspectName(0)
	ev := &evidence{
		terms: map[string][]*term{
			key: {
				{owner: "w0.1", claim: "one", suspectable: true, fence: 10, end: 20, suspected: true},
				{owner: "w1.1", claim: "two", suspectable: true, fence: 20, end: 30},
				{owner: "w2.1", claim: "three", suspectable: true, fence: 30, end: 40, lapsed: true},
				{owner: "w0.1", claim: "four", fence: 41},
			},
			fencedSetKey: {
				{owner: "w0.1", claim: "five", suspectable: true, fence: 50, end: 60, suspected: true},
				{owner: "w1.1", claim: "six", suspectable: true, fence: 60},
			},
		},
		journals: []entry{
			{Op: opSuspected, Want: 1},
			{Op: opSuspected, Want: 1, Note: wronglySuspected},
			{Op: opIntent, ID: "late", Kind: kindLate, Key: key, Fence: 10},
			{Op: opRefused, ID: "late", Kind: kindLate, Key: key, Fence: 10},
		},
	}
	ev.write(key, 10, 15)
	ev.write(key, 20, 25)
	return ev
}

// write adds an effect that was carried out at a revision.
func (ev *evidence) write(key string, fence, rev int64) {
	e := effect{id: key + "-" + string(rune('a'+len(ev.effects))), key: key, fence: fence, kind: kindHeld, create: rev, mod: rev}
	ev.effects = append(ev.effects, e)
	ev.journals = append(ev.journals, entry{Op: opIntent, ID: e.id, Kind: e.kind, Key: key, Fence: fence})
}

func TestSuspicions(t *testing.T) {
	key := suspectName(0)
	tests := []struct {
		name  string
		spoil func(*evidence)
		want  map[string]int // findings
	}{
		{"OK", func(*evidence) {}, nil},
		{"an effect of a suspected holder", func(ev *evidence) { ev.write(key, 10, 22) }, map[string]int{stale: 1}},
		{"a holder that cannot be suspected", func(ev *evidence) { ev.terms[key][0].suspectable = false }, map[string]int{barred: 1}},
		{"a caller that may not suspect", func(ev *evidence) { ev.terms[fencedSetKey][1].suspectable = false }, map[string]int{barred: 1}},
		{"a zombie", func(ev *evidence) { ev.terms[fencedSetKey][0].kind = "zombie" }, map[string]int{barred: 1}},
		{"taken for nobody", func(ev *evidence) { ev.terms[fencedSetKey] = ev.terms[fencedSetKey][:1] }, map[string]int{barred: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := suspicious()
			tt.spoil(ev)
			checkVerdict(t, judge(ev), tt.want)
		})
	}
	ev := suspicious()
	v := judge(ev)
	for what, want := range map[string]int{
		"terms of suspectable keys": 4, "terms of suspectable keys handed over": 1,
		"terms of suspectable keys that ended with a lease": 1, countSuspected: 2, countSuspected + " rightly": 1,
		countSuspected + " wrongly": 1, "effects of suspected holders refused by etcd alone": 1,
	} {
		if got := v.figures[what]; got != want {
			t.Errorf("%d %s, want %d", got, what, want)
		}
	}
}

// TestSuspectedSeen checks how the observer reads a take-over in both orders of its events, a
// notice of a forced release, and a notice for another claim.
func TestSuspectedSeen(t *testing.T) {
	key := suspectName(0)
	notice := func(claim, suspected string) event {
		return event{key: livePrefix + "i/evict/" + claim, value: []byte(`{"claim":"` + claim + `"` + suspected + `}`), rev: 20}
	}
	put := func(claim, owner string, rev int64) event {
		return event{key: ownPrefix + key, value: []byte(`{"claim":"` + claim + `","owner":"` + owner + `","suspectable":true}`), rev: rev}
	}
	f := func(name string, want bool, events ...event) *ownership {
		t.Helper()
		h := newOwnership()
		h.hear(second(0), 10, 1, []event{put("one", "w0.1", 10)})
		h.hear(second(10), 20, 1, events)
		if terms := h.terms[key]; len(terms) != 2 || terms[0].suspected != want || !terms[0].suspectable || terms[0].end != 20 {
			t.Errorf("%s: %+v", name, terms[0])
		}
		return h
	}
	const yes = `,"suspected":true`
	next := put("two", "w1.1", 20)
	h := f("claim first", true, next, notice("one", yes))
	f("notice first", true, notice("one", yes), next)
	f("forced", false, notice("one", ""), next)
	f("another claim", false, notice("other", yes), next)
	f("handed over", false, next)

	during := func(kind faultKind, worker string, from, to float64) fault {
		return fault{kind: kind, worker: worker, from: second(from), to: second(to)}
	}
	explained := func(name string, want bool, faults ...fault) {
		t.Helper()
		if got := h.unexplained(faults); (len(got) == 0) != want {
			t.Errorf("%s: not explained: %v", name, got)
		}
	}
	explained("nothing", false)
	explained("its worker was stopped", true, during(stopWorker, "w0.1", 9, 11))
	explained("its links were cut before it began", true, during(cutLinks, "w0.0", 8, 9))
	explained("its worker was killed long before", true, during(killWorker, "w0.1", 0, 0))
	explained("an earlier worker was killed long before", false, during(killWorker, "w0.0", 0, 0))
	explained("a member was stopped", true, during(stopFollower, "", 9, 11))
	explained("all was over before", false, during(stopWorker, "w0.1", 1, 2))
	explained("another worker", false, during(stopWorker, "w1.1", 9, 11))
	explained("a compaction", false, during(compactAll, "", 9, 9))
	h.stalls.note(second(9), second(9).Add(100*time.Millisecond))
	explained("this program stalled", true)
	if got := newOwnership().unexplained(nil); !slices.Equal(got, nil) {
		t.Errorf("nobody was suspected: %v", got)
	}
}

func TestSlowSuspicion(t *testing.T) {
	f := func(name string, slow bool, n int, p pickup) {
		t.Helper()
		if got := slowSuspicion(slices.Repeat([]pickup{p}, n)); (len(got) > 0) != slow {
			t.Errorf("%s: %q", name, got)
		}
	}
	f("fast", false, 10, pickup{suspected: true, took: time.Second})
	f("slow", true, 10, pickup{suspected: true, took: 4 * time.Second})
	f("slow by stalls", false, 10, pickup{suspected: true, took: 4 * time.Second, stalled: 2 * time.Second})
	f("too few", false, 9, pickup{suspected: true, took: 4 * time.Second})
	f("with a new leader", false, 10, pickup{suspected: true, took: 4 * time.Second, what: leaderLost})
	f("at the end of the lease", false, 10, pickup{took: 4 * time.Second})
}
