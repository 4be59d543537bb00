package item_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/item"
)

// Items of a session that is over wait again, once, or are dead after their last attempt.
func TestRecover(t *testing.T) {
	w := newWorld(t)
	w.put(keys.Worker("s1"), "{}")
	w.enqueue("a", noon)
	for attempt := 1; attempt <= 2; attempt++ {
		held := w.claim("s1")
		step := item.Recover{Keys: keys, Session: "s1", Taken: w.under(keys.TakenBy("s1")), Now: noon}
		in, unreadable := step.Build()
		if resp := w.do(in); resp.Succeeded || unreadable != nil {
			t.Fatalf("taken from a session that lives: %v", unreadable)
		}
		w.delete(keys.Own("s1"))
		if moved := step.Judge(w.do(in)); moved != 1 {
			t.Errorf("%d items recovered", moved)
		}
		if moved := step.Judge(w.do(in)); moved != 0 {
			t.Errorf("%d items recovered again", moved)
		}
		if w.do(item.Complete{Held: held, Now: noon}.Build()).Succeeded {
			t.Error("completed by a worker that was lost")
		}
		prefix := map[int]string{1: keys.Ready(), 2: keys.Dead()}[attempt]
		st := w.entry(prefix).State
		if last := st.History[attempt-1]; st.Attempts != attempt || last.Ending != item.AttemptLost || last.Fence != held.Fence() {
			t.Errorf("%+v", st)
		}
		if settled := w.do(step.Settle()).Succeeded; !settled {
			t.Error("the entry of the session stays")
		}
		w.put(keys.Own("s1"), "{}")
	}
}

// Items of which no worker knows do not lose an attempt. One that cannot be read is buried as it is, and
// its slot is freed.
func TestGiveBack(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	w.claim("s1")
	w.put(keys.TakenBy("s1")+"b", `{"v":9}`)
	w.put(keys.Slots()+"00001", "s1/b")
	step := item.GiveBack{Keys: keys, Taken: w.under(keys.TakenBy("s1")), Slots: map[string]string{"s1/b": keys.Slots() + "00001"}, Now: noon}
	in, unreadable := step.Build()
	w.do(in)
	w.want("ready dead")
	if st := w.entry(keys.Ready()).State; st.Attempts != 0 || len(unreadable) != 1 {
		t.Errorf("%+v, %v", st, unreadable)
	}
	if bare := w.under(keys.Dead())[0]; keys.BareID(string(bare.Key)) != "b" || string(bare.Value) != `{"v":9}` {
		t.Errorf("%s", bare)
	}
	if len(w.under(keys.Slots())) != 0 {
		t.Error("the slot is left")
	}
	purge := item.Purge{Keys: keys, Letters: w.under(keys.Dead())}
	if n := purge.Judge(w.do(purge.Build())); n != 1 {
		t.Errorf("%d purged", n)
	}
}
