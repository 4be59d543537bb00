package main

import (
	"testing"
	"time"
)

// several returns evidence without a violation: a slot that is handed over,
// and on another key a writer, two readers, and a writer after them.
func several() *evidence {
	ev := &evidence{
		terms: map[string][]*term{
			slotsKey:       {{fence: 10}},
			"slots#slot-0": {{owner: "w0.1", fence: 10, end: 20}, {owner: "w1.1", fence: 20}},
			"slots#slot-1": {{owner: "w2.1", fence: 12, end: 18}, {owner: "w2.1", kind: "zombie", fence: 18}},
			"slots#slot-2": {{owner: "w3.1", fence: 13}},
			"shared-0": {
				{owner: "w0.1", claim: "writer", fence: 110, end: 120},
				{kind: kindShared, fence: 120, end: 140},
				{owner: "w3.1", claim: "next", fence: 140},
			},
			"shared-0#shared-one": {{owner: "w1.1", claim: "one", fence: 120, end: 135}},
			"shared-0#shared-two": {{owner: "w2.1", claim: "two", fence: 125, end: 140}},
		},
		taken: map[string][]int64{},
	}
	ev.grant(entry{Key: "slots#slot-0", Fence: 10})
	ev.grant(entry{Key: "slots#slot-0", Fence: 20})
	ev.grant(entry{Key: "slots#slot-2", Fence: 13})
	ev.grant(entry{Key: "shared-0#shared-one", Fence: 120, Gate: 120})
	ev.grant(entry{Key: "shared-0#shared-two", Fence: 125, Gate: 120})
	ev.write("slots#slot-0", 10, 15)
	ev.write("slots#slot-0", 20, 21)
	ev.write("slots#slot-2", 13, 19)
	ev.write("shared-0", 110, 111)
	ev.write("shared-0#shared-one", 120, 130)
	ev.write("shared-0#shared-two", 125, 131)
	ev.write("shared-0", 140, 141)
	return ev
}

func (ev *evidence) grant(e entry) {
	e.Op = opGranted
	ev.journals = append(ev.journals, e)
}

// write adds an effect that was carried out at a revision.
func (ev *evidence) write(key string, fence, rev int64) {
	e := effect{id: key + "-" + string(rune('a'+len(ev.effects))), key: key, fence: fence, kind: kindHeld, create: rev, mod: rev}
	ev.effects = append(ev.effects, e)
	ev.journals = append(ev.journals, entry{Op: opIntent, ID: e.id, Kind: e.kind, Key: key, Fence: fence})
}

// TestSeveral spoils the evidence of slots and of readers and writers in one way at a time.
func TestSeveral(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*evidence)
		want  map[string]int // findings
	}{
		{"OK", func(*evidence) {}, nil},
		{"more slots than there are", func(ev *evidence) {
			ev.terms["slots#slot-3"] = []*term{{owner: "w4.1", fence: 14}}
		}, map[string]int{"stale": 1}},
		{"two owners of a slot", func(ev *evidence) { ev.terms["slots#slot-0"][0].end = 25 }, map[string]int{"stale": 3}},
		{"a slot granted that nobody had", func(ev *evidence) { ev.grant(entry{Key: "slots#slot-1", Fence: 30}) }, map[string]int{"answers": 1}},
		{"OK a slot granted in a gap of the observer", func(ev *evidence) {
			ev.gaps = [][2]int64{{29, 31}}
			ev.grant(entry{Key: "slots#slot-1", Fence: 30})
		}, nil},
		{"an effect of a slot's earlier owner", func(ev *evidence) { ev.write("slots#slot-0", 10, 22) }, map[string]int{"stale": 1}},
		{"an effect of a zombie", func(ev *evidence) { ev.write("slots#slot-1", 12, 19) }, map[string]int{"stale": 1}},

		{"a writer beside a reader", func(ev *evidence) { ev.terms["shared-0#shared-one"][0].end = 145 }, map[string]int{"stale": 2}},
		{"a reader that never ends beside a writer", func(ev *evidence) { ev.terms["shared-0#shared-one"][0].end = 0 }, map[string]int{"stale": 1}},
		{"a reader that comes before the writer has gone", func(ev *evidence) {
			ev.terms["shared-0#shared-one"][0].fence = 119
			ev.journals[3].Fence, ev.journals[3].Gate = 119, 120
			ev.effects = nil
		}, map[string]int{"stale": 2, "answers": 1}},
		{"two writers", func(ev *evidence) {
			ev.terms["shared-0"] = append(ev.terms["shared-0"], &term{owner: "w5.1", fence: 150})
		}, map[string]int{"stale": 1}},
		{"OK a reader whose record was deleted", func(ev *evidence) {
			ev.terms["shared-0#shared-one"][0].end = 145
			ev.terms["shared-0"][1].end = 132
			ev.taken["shared-0"] = []int64{132}
		}, nil},
		{"an effect after the record was deleted", func(ev *evidence) {
			ev.terms["shared-0#shared-one"][0].end = 145
			ev.terms["shared-0"][1].end = 129
			ev.taken["shared-0"] = []int64{129}
		}, map[string]int{"stale": 3}}, // of each reader, and of the shared key
		{"OK a reader whose end was not seen in time", func(ev *evidence) {
			ev.terms["shared-0#shared-one"][0].end = 145
			ev.gaps = [][2]int64{{131, 145}}
		}, nil},
		{"an effect of a reader that has ended", func(ev *evidence) { ev.write("shared-0#shared-one", 120, 136) }, map[string]int{"stale": 1}},
		{"an effect of a reader after a writer's", func(ev *evidence) { ev.write("shared-0#shared-two", 125, 142) }, map[string]int{"stale": 2}},
		{"an effect of a writer among readers", func(ev *evidence) { ev.write("shared-0", 110, 131) }, map[string]int{"stale": 1}},
		{"a reader with the fence of a writer", func(ev *evidence) {
			ev.journals[4].Gate = 110
			ev.effects = nil
		}, map[string]int{"answers": 1}},
		{"a reader with a fence that gates have left behind", func(ev *evidence) { ev.journals[4].Gate = 110 }, map[string]int{"answers": 1, "stale": 1}},
		{"a reader with the fence of no record", func(ev *evidence) {
			ev.journals[4].Gate = 124
			ev.effects = nil
		}, map[string]int{"answers": 1}},
		{"a reader that etcd has not had", func(ev *evidence) { ev.grant(entry{Key: "shared-0#shared-three", Fence: 126, Gate: 120}) }, map[string]int{"answers": 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := several()
			tt.spoil(ev)
			checkVerdict(t, judge(ev), tt.want)
		})
	}
}

func TestSeveralFigures(t *testing.T) {
	v := judge(several())
	if v.slots != (tally{terms: 4, handedOver: 1}) {
		t.Errorf("slots %+v", v.slots)
	}
	if v.readers != (tally{terms: 2}) || v.writers != (tally{terms: 2}) || v.records != 1 || v.afterReaders != 1 {
		t.Errorf("readers %+v, writers %+v, %d records, %d writers after them", v.readers, v.writers, v.records, v.afterReaders)
	}
}

// TestPickupOfSeveral tells of a dead holder of a slot, and of a dead reader.
func TestPickupOfSeveral(t *testing.T) {
	const slot, reader = "slots#slot-1", "shared-0#shared-one"
	placeOf := func(owner string, from, to float64) *place {
		p := &place{owner: owner, from: second(from)}
		if to > 0 {
			p.to = second(to)
		}
		return p
	}
	f := func(name, key string, next float64, change func(*ownership), found, late bool) {
		t.Helper()
		h := newOwnership()
		h.terms[key] = []*term{{owner: "w0.1", fence: 10, begun: second(-1), end: 20, ended: second(5)}}
		after := &term{owner: "w1.1", fence: 30, begun: second(next)}
		if key == slot {
			h.terms[key] = append(h.terms[key], after)
		} else {
			h.terms["shared-0"] = []*term{{kind: kindShared, fence: 10, begun: second(-1), end: 29, ended: second(next)}, after}
		}
		change(h)
		pickups := findPickups(h, []fault{{kind: killWorker, worker: "w0.1", from: second(0), to: second(0)}}, 5*time.Second, second(60))
		if (len(pickups) > 0) != found || found && pickups[0].late() != late {
			t.Errorf("%s: found %v", name, pickups)
		}
	}
	line := lineOf(slot)
	f("one waits for a slot", slot, 5.5, func(h *ownership) { h.places[line] = []*place{placeOf("w1.1", -1, 0)} }, true, false)
	f("one waits too long for a slot", slot, 6.5, func(h *ownership) { h.places[line] = []*place{placeOf("w1.1", -1, 0)} }, true, true)
	f("one is the first for a second", slot, 6.5, func(h *ownership) {
		h.places[line] = []*place{placeOf("w1.1", -1, 2), placeOf("w2.1", 1, 4.9), placeOf("w3.1", 3, 6.5), placeOf("w4.1", 4, 0)}
	}, true, true)
	f("one after the other is the first", slot, 6.5, func(h *ownership) {
		h.places[line] = []*place{placeOf("w1.1", -1, 5.1), placeOf("w2.1", 2, 6.5)}
	}, false, false)
	f("nobody waited before", slot, 6.5, func(h *ownership) { h.places[line] = []*place{placeOf("w1.1", 5.1, 6.5)} }, false, false)
	f("the first is dead too", slot, 6.5, func(h *ownership) {
		h.places[line] = []*place{placeOf("w0.1", -2, 5.5), placeOf("w1.1", -1, 6.5)}
	}, false, false)

	line = lineOf(reader)
	f("a writer waits", reader, 5.5, func(h *ownership) { h.places[line] = []*place{placeOf("w1.1", -1, 5.5)} }, true, false)
	f("a writer waits too long", reader, 6.5, func(h *ownership) { h.places[line] = []*place{placeOf("w1.1", -1, 6.5)} }, true, true)
	f("a reader waits", reader, 6.5, func(h *ownership) {
		h.places[line] = []*place{placeOf("w1.1", -1, 6.5)}
		h.places[line][0].shared = true
	}, false, false)
	f("another reader goes on", reader, 6.5, func(h *ownership) {
		h.places[line] = []*place{placeOf("w1.1", -1, 6.5)}
		h.terms["shared-0#shared-two"] = []*term{{owner: "w2.1", fence: 11, begun: second(-1), end: 25, ended: second(6)}}
	}, false, false)
}
