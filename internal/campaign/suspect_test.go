package main

import (
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// suspicious returns evidence without a violation: two holders were suspected, the second one
// wrongly.
func suspicious() *evidence {
	key := suspectName(0)
	can := func(owner string) holder { return holder{Owner: owner, Suspectable: true} }
	late := entry{Op: opIntent, ID: "late", Kind: kindLate, Key: key, Fence: 10}
	ev := &evidence{
		terms: map[string][]*term{
			key: {
				{holder: can("w0.1"), fence: 10, end: 20, suspected: true},
				{holder: can("w1.1"), fence: 20, end: 30},
				{holder: can("w2.1"), fence: 30, end: 40, lapsed: true},
				{holder: holder{Owner: "w0.1"}, fence: 41},
			},
			setKey: {
				{holder: can("w0.1"), fence: 50, end: 60, suspected: true},
				{holder: can("w1.1"), fence: 60},
			},
		},
		journals: []entry{
			{Op: opSuspected, Want: 1},
			{Op: opSuspected, Want: 1, Note: wronglySuspected},
			late, told(late, opRefused),
		},
	}
	ev.write(key, 10, 15)
	ev.write(key, 20, 25)
	return ev
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
		{"a holder that cannot be suspected", func(ev *evidence) { ev.terms[key][0].Suspectable = false }, map[string]int{barred: 1}},
		{"a caller that may not suspect", func(ev *evidence) { ev.terms[setKey][1].Suspectable = false }, map[string]int{barred: 1}},
		{"a zombie", func(ev *evidence) { ev.terms[setKey][0].Kind = "zombie" }, map[string]int{barred: 1}},
		{"taken for nobody", func(ev *evidence) { ev.terms[setKey] = ev.terms[setKey][:1] }, map[string]int{barred: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := suspicious()
			tt.spoil(ev)
			checkVerdict(t, judge(ev), tt.want)
		})
	}
	v := judge(suspicious())
	for what, want := range map[string]int{
		"terms": 6, "terms handed over": 1, "terms that ended with a lease": 1, countSuspected: 2, countSuspected + ", rightly": 1,
		countSuspected + ", wrongly": 1, "effects of suspected holders refused by etcd alone": 1,
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
	notice := func(claim, suspected string) *clientv3.Event {
		return putEvent(20, livePrefix+"i/evict/"+claim, `{"claim":"`+claim+`"`+suspected+`}`)
	}
	put := func(rev int64, claim string) *clientv3.Event {
		return putEvent(rev, ownPrefix+key, `{"claim":"`+claim+`","suspectable":true}`)
	}
	f := func(name string, want bool, events ...*clientv3.Event) {
		t.Helper()
		h := newOwnership()
		h.hear(second(0), 1, put(10, "one"))
		h.hear(second(10), 1, events...)
		if terms := h.terms[key]; len(terms) != 2 || terms[0].suspected != want || !terms[0].Suspectable || terms[0].end != 20 {
			t.Errorf("%s: %+v", name, terms[0])
		}
	}
	const yes = `,"suspected":true`
	next := put(20, "two")
	f("claim first", true, next, notice("one", yes))
	f("notice first", true, notice("one", yes), next)
	f("forced", false, notice("one", ""), next)
	f("another claim", false, notice("other", yes), next)
	f("handed over", false, next)
}

func TestSlowSuspicion(t *testing.T) {
	f := func(name string, slow bool, n int, p pickup) {
		t.Helper()
		if slowSuspicion(slices.Repeat([]pickup{p}, n)) != slow {
			t.Errorf("%s: slow is not %v", name, slow)
		}
	}
	f("fast", false, 10, pickup{suspected: true, took: time.Second})
	f("slow", true, 10, pickup{suspected: true, took: 4 * time.Second})
	f("slow by stalls", false, 10, pickup{suspected: true, took: 4 * time.Second, stalled: 2 * time.Second})
	f("too few", false, 9, pickup{suspected: true, took: 4 * time.Second})
	f("with a new leader", false, 10, pickup{suspected: true, took: 4 * time.Second, what: leaderLost})
	f("at the end of the lease", false, 10, pickup{took: 4 * time.Second})
}
