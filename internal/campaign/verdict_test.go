package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// told returns what a worker was told of an effect.
func told(intent entry, op string) entry {
	intent.Op = op
	return intent
}

// write adds an effect that was carried out at a revision, and of which its worker heard nothing.
func (ev *evidence) write(key string, fence, rev int64) {
	e := entry{Op: opIntent, ID: key + "-" + string(rune('a'+len(ev.effects))), Kind: kindHeld, Key: key, Fence: fence}
	ev.effects = append(ev.effects, effect{e, rev, 1})
	ev.journals = append(ev.journals, e)
}

// good returns evidence without a violation: two owners of job-0, one after the
// other, an item of the queue, and a set.
func good() *evidence {
	intent := func(id, kind, key string, fence int64) entry {
		return entry{Op: opIntent, ID: id, Kind: kind, Key: key, Fence: fence}
	}
	one, two := intent("w0.1-1", kindTxn, "job-0", 10), intent("w1.1-1", kindHeld, "job-0", 20)
	late, dead := intent("w0.1-2", kindLate, "job-0", 10), intent("w1.1-2", kindTxn, "job-0", 20)
	item, element := intent("w0.1-3", kindItem, "i1", 30), intent("w0.1-4", kindSet, setKey, 40)
	return &evidence{
		journals: []entry{
			one, told(one, opDone), two, told(two, opUnknown), late, told(late, opRefused), dead,
			{Op: opEnqueued, Key: "i1"},
			{Op: opClaimed, Key: "i1", Fence: 30},
			item, told(item, opDone),
			element, told(element, opDone),
		},
		effects: []effect{{one, 11, 1}, {two, 21, 1}, {item, 31, 1}},
		set:     []string{"w0.1-4"},
		terms: map[string][]*term{
			"job-0": {{holder: holder{Owner: "w0.1"}, fence: 10, end: 20}, {holder: holder{Owner: "w1.1"}, fence: 20}},
		},
	}
}

// TestVerdict spoils good evidence in one way at a time: a judge that cannot
// condemn proves nothing.
func TestVerdict(t *testing.T) {
	outcome := func(ev *evidence, id, op string) {
		i := slices.IndexFunc(ev.journals, func(e entry) bool { return e.ID == id && e.Op != opIntent })
		ev.journals[i].Op = op
	}
	carryOut := func(ev *evidence, id string, rev int64) {
		i := slices.IndexFunc(ev.journals, func(e entry) bool { return e.ID == id && e.Op == opIntent })
		ev.effects = append(ev.effects, effect{ev.journals[i], rev, 1})
	}
	remove := func(ev *evidence, id string) {
		ev.effects = slices.DeleteFunc(ev.effects, func(e effect) bool { return e.ID == id })
	}
	tests := []struct {
		name  string
		spoil func(*evidence)
		want  map[string]int // findings
	}{
		{"OK", func(*evidence) {}, nil},
		{"OK an effect with the end of its term", func(ev *evidence) { ev.write("job-0", 10, 20) }, nil},
		{"an effect after a newer owner's", func(ev *evidence) { ev.write("job-0", 10, 22) }, map[string]int{stale: 1}},
		{"an effect after the term, before the next owner's first", func(ev *evidence) {
			ev.terms["job-0"][0].end = 15
			ev.write("job-0", 10, 16)
		}, map[string]int{stale: 1}},
		{"a fence that nobody had", func(ev *evidence) { ev.write("job-0", 25, 26) }, map[string]int{stale: 1}},
		{"an acknowledged effect that is not there", func(ev *evidence) { remove(ev, "w0.1-1") }, map[string]int{answers: 1}},
		{"OK an unknown effect that is not there", func(ev *evidence) { remove(ev, "w1.1-1") }, nil},
		{"OK an effect that is there, of a worker that was killed", func(ev *evidence) { carryOut(ev, "w1.1-2", 22) }, nil},
		{"an effect put twice", func(ev *evidence) { ev.effects[0].version = 2 }, map[string]int{answers: 1}},
		{"a refused effect that is there", func(ev *evidence) { carryOut(ev, "w0.1-2", 12) }, map[string]int{answers: 1}},
		{"a failed effect that is there", func(ev *evidence) { outcome(ev, "w0.1-1", opFailed) }, map[string]int{answers: 1}},
		{"an effect that nobody intended", func(ev *evidence) {
			ev.effects = append(ev.effects, effect{entry{ID: "x", Key: "job-0", Fence: 20}, 22, 1})
		}, map[string]int{unasked: 1}},
		{"an effect under another fence than intended", func(ev *evidence) { ev.journals[0].Fence = 9 }, map[string]int{unasked: 1}},
		{"an acknowledged element that is not there", func(ev *evidence) { ev.set = nil }, map[string]int{answers: 1}},
		{"an element that is there twice", func(ev *evidence) { ev.set = []string{"w0.1-4", "w0.1-4"} }, map[string]int{answers: 1}},
		{"an item that was never completed", func(ev *evidence) {
			ev.journals = append(ev.journals, entry{Op: opEnqueued, Key: "i2"})
		}, map[string]int{lost: 1}},
		{"an item that was completed twice", func(ev *evidence) { ev.effects[2].version = 2 }, map[string]int{answers: 1}},
		{"an item completed by another than was told", func(ev *evidence) {
			other := entry{Op: opIntent, ID: "w2.1-1", Kind: kindItem, Key: "i1", Fence: 31}
			ev.journals = append(ev.journals, other)
			ev.effects[2].entry = other
		}, map[string]int{answers: 1}},
		{"an item whose worker was told of a failure", func(ev *evidence) { outcome(ev, "w0.1-3", opFailed) }, map[string]int{answers: 1}},
		{"an item that nobody meant to complete", func(ev *evidence) {
			ev.effects = append(ev.effects, effect{entry{ID: "x", Kind: kindItem, Key: "i2", Fence: 32}, 33, 1})
		}, map[string]int{unasked: 1}},
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
		"effects by Claim.Txn: done": 1, "effects by Claim.Txn: killed before the reply": 1, "effects by a guard: unknown": 1,
		"effects by a late guard: refused": 1, "effects on the set: done": 1, "effects on an item: done": 1,
		"effects unknown that turned out applied": 1, "items enqueued": 1, "items claimed": 1,
		"terms": 2, "terms handed over": 1,
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
		j.write(entry{Op: opIntent, ID: j.id(), Kind: kindTxn, Key: "job-0", Fence: 1}),
		j.write(entry{Op: opOdd, Note: "two\nlines"}),
	}
	// A worker that was killed in the midst of an entry.
	if _, err := j.file.WriteString(`{"op":"in`); err != nil {
		t.Fatal(err)
	}
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := readJournals(dir)
	if err != nil || !slices.Equal(got, want) || got[0].At == 0 {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "w1.1"+journalEnd), []byte("?\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readJournals(dir); err == nil || !strings.Contains(err.Error(), "w1.1") {
		t.Errorf("error %v for a journal that cannot be read", err)
	}
}
