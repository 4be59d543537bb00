package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// good returns evidence without a violation: two owners of job-0, one after the
// other, an item of the queue, and a set.
func good() *evidence {
	return &evidence{
		journals: []entry{
			{Op: opIntent, ID: "w0.1-1", Kind: kindTxn, Key: "job-0", Fence: 10},
			{Op: opOK, ID: "w0.1-1", Kind: kindTxn, Key: "job-0", Fence: 10, Rev: 11},
			{Op: opIntent, ID: "w1.1-1", Kind: kindHeld, Key: "job-0", Fence: 20},
			{Op: opUnknown, ID: "w1.1-1", Kind: kindHeld, Key: "job-0", Fence: 20},
			{Op: opIntent, ID: "w0.1-2", Kind: kindLate, Key: "job-0", Fence: 10},
			{Op: opRefused, ID: "w0.1-2", Kind: kindLate, Key: "job-0", Fence: 10},
			{Op: opIntent, ID: "w1.1-2", Kind: kindTxn, Key: "job-0", Fence: 20}, // killed
			{Op: opEnqueued, Key: "i1"},
			{Op: opClaimed, Key: "i1", Fence: 30},
			{Op: opCompleted, Key: "i1", Fence: 30},
			{Op: opIntent, ID: "w0.1-4", Kind: kindSet, Key: fencedSetKey, Fence: 40},
			{Op: opOK, ID: "w0.1-4", Kind: kindSet, Key: fencedSetKey, Fence: 40},
		},
		effects: []effect{
			{id: "w0.1-1", key: "job-0", fence: 10, kind: kindTxn, create: 11, mod: 11},
			{id: "w1.1-1", key: "job-0", fence: 20, kind: kindHeld, create: 21, mod: 21},
		},
		set:       []string{"w0.1-4"},
		queueDone: map[string]queueDone{"i1": {30, 1}},
		terms: map[string][]*term{
			"job-0": {{owner: "w0.1", fence: 10, end: 20}, {owner: "w1.1", fence: 20}},
		},
	}
}

// TestVerdict spoils good evidence in one way at a time: a judge that cannot
// condemn proves nothing.
func TestVerdict(t *testing.T) {
	add := func(ev *evidence, e effect) {
		ev.journals = append(ev.journals, entry{Op: opIntent, ID: e.id, Kind: e.kind, Key: e.key, Fence: e.fence})
		ev.effects = append(ev.effects, e)
	}
	remove := func(ev *evidence, id string) {
		ev.effects = slices.DeleteFunc(ev.effects, func(e effect) bool { return e.id == id })
	}
	tests := []struct {
		name  string
		spoil func(*evidence)
		want  map[string]int // findings
	}{
		{"OK", func(*evidence) {}, nil},
		{"an effect after a newer owner's", func(ev *evidence) {
			add(ev, effect{id: "x", key: "job-0", fence: 10, kind: kindTxn, create: 22, mod: 22})
		}, map[string]int{stale: 1}},
		{"an effect after the term, before the next owner's first", func(ev *evidence) {
			ev.terms["job-0"][0].end = 15
			add(ev, effect{id: "x", key: "job-0", fence: 10, kind: kindTxn, create: 16, mod: 16})
		}, map[string]int{stale: 1}},
		{"a fence that nobody had", func(ev *evidence) {
			add(ev, effect{id: "x", key: "job-0", fence: 25, kind: kindTxn, create: 26, mod: 26})
		}, map[string]int{stale: 1}},
		{"two terms at once", func(ev *evidence) { ev.terms["job-0"][0].end = 0 }, map[string]int{stale: 1}},
		{"OK a fence that the observer cannot have seen", func(ev *evidence) {
			ev.gaps = [][2]int64{{24, 25}}
			add(ev, effect{id: "x", key: "job-0", fence: 25, kind: kindTxn, create: 26, mod: 26})
		}, nil},
		{"an acknowledged effect that is not there", func(ev *evidence) { remove(ev, "w0.1-1") }, map[string]int{answers: 1}},
		{"OK an unknown effect that is not there", func(ev *evidence) { remove(ev, "w1.1-1") }, nil},
		{"an effect put twice", func(ev *evidence) { ev.effects[0].mod = 12 }, map[string]int{doubled: 1}},
		{"a refused effect that is there", func(ev *evidence) {
			ev.effects = append(ev.effects, effect{id: "w0.1-2", key: "job-0", fence: 10, kind: kindLate, create: 12, mod: 12})
		}, map[string]int{answers: 1}},
		{"a failed effect that is there", func(ev *evidence) { ev.journals[1].Op = opFailed }, map[string]int{answers: 1}},
		{"an effect that nobody intended", func(ev *evidence) {
			ev.effects = append(ev.effects, effect{id: "x", key: "job-0", fence: 20, kind: kindTxn, create: 22, mod: 22})
		}, map[string]int{unasked: 1}},
		{"an effect under another fence than intended", func(ev *evidence) { ev.journals[0].Fence = 9 }, map[string]int{unasked: 1}},
		{"an acknowledged element that is not there", func(ev *evidence) { ev.set = nil }, map[string]int{answers: 1}},
		{"an element that is there twice", func(ev *evidence) { ev.set = []string{"w0.1-4", "w0.1-4"} }, map[string]int{answers: 1}},
		{"an item that was never completed", func(ev *evidence) {
			ev.journals = append(ev.journals, entry{Op: opEnqueued, Key: "i2"})
		}, map[string]int{lost: 1}},
		{"an item that was completed twice", func(ev *evidence) { ev.queueDone["i1"] = queueDone{30, 2} }, map[string]int{doubled: 1}},
		{"an item completed by another than was told", func(ev *evidence) {
			ev.queueDone["i1"] = queueDone{31, 1}
			ev.deaths = map[string]time.Time{"w2.1": {}}
		}, map[string]int{answers: 1}},
		{"an item of which nobody who lives was told", func(ev *evidence) { ev.queueDone["i2"] = queueDone{31, 1} }, map[string]int{answers: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev := good()
			tt.spoil(ev)
			checkVerdict(t, judge(ev), tt.want)
		})
	}
}

// checkVerdict compares how many findings there are of each sort.
func checkVerdict(t *testing.T, v *verdict, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for name, list := range v.findings {
		got[name] = len(list)
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
		t.Logf("%+v", v)
	}
	if v.held() != (len(want) == 0) {
		t.Errorf("held is %v", v.held())
	}
}

func TestVerdictFigures(t *testing.T) {
	ev := good()
	ev.journals = append(ev.journals, entry{Op: opOdd, Note: "odd"})
	v := judge(ev)
	want := map[string]int{
		"effects in etcd": 2, "effects and elements acknowledged": 2, "effects refused as stale": 1,
		"effects refused as stale by etcd alone": 1, "effects unknown": 1,
		"effects unknown, of workers killed before the reply": 1, "effects unknown that turned out applied": 1,
		"elements in the fenced set": 1, "items enqueued": 1, "items claimed": 1, "items completed": 1,
		"items completed by workers killed before they noted it": 0,
	}
	if !maps.Equal(v.figures, want) || !slices.Equal(v.findings[odd], []string{"odd"}) {
		t.Errorf("got %v and %q, want %v", v.figures, v.findings[odd], want)
	}
}

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	j, err := openJournal(dir, "w0.1")
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{Op: opIntent, ID: j.id(), Kind: kindTxn, Key: "job-0", Fence: 1},
		{Op: opOdd, Note: "two\nlines"},
	}
	for _, e := range want {
		j.write(e)
	}
	// A worker that was killed in the midst of an entry.
	if _, err := j.file.WriteString(`{"op":"in`); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	got, err := readJournals(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].At == 0 {
			t.Errorf("entry %d has no time", i)
		}
		got[i].At = 0
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "w1.1"+journalEnd), []byte("?\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readJournals(dir); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("error %v for a journal that cannot be read", err)
	}
}
