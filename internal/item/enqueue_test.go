package item_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestEnqueueOnce(t *testing.T) {
	w := newWorld(t)
	step := item.Enqueue{Keys: keys, New: item.New{ID: "a", Seq: "1", Max: 1}, Now: noon}
	if got := step.Judge(w.do(step.Build())); got != item.Added {
		t.Errorf("a new item: %v", got)
	}
	if got := step.Judge(w.do(step.Build())); got != item.Had {
		t.Errorf("the same item again: %v", got)
	}
	w.want("ready")
	held := w.claim("s1")
	w.do(item.Discard{Held: held, Now: noon}.Build())
	if got := step.Judge(w.do(step.Build())); got != item.HadBuried {
		t.Errorf("the id of a dead letter: %v", got)
	}
}

func TestEnqueueAllWithinRoom(t *testing.T) {
	w := newWorld(t)
	w.enqueue("b", noon)
	room := keys.JudgeRoom(w.ask(keys.ReadRoom()...))
	if room.Waiting != 1 {
		t.Errorf("%d items wait", room.Waiting)
	}
	items := []item.New{{ID: "a", Seq: "1"}, {ID: "b", Seq: "2"}, {ID: "c", Seq: "3", Vesting: noon.Add(1)}}
	step := item.EnqueueAll{Keys: keys, Items: items, Now: noon, Room: &room}
	resp := w.do(step.Build())
	if got := step.Judge(resp); !resp.Succeeded || got[0] != item.Added || got[1] != item.Had || got[2] != item.Added {
		t.Errorf("%v: %v", resp.Succeeded, got)
	}
	w.want("ready ready later")
	if w.do(step.Build()).Succeeded {
		t.Error("accepted, although the room has changed")
	}
	if len(w.under(keys.Active())) != 1 {
		t.Error("the queue is not noted as one with work")
	}
}

// The history shows whether an item was put, also if it is gone or replaced.
func TestEnqueueFoundInHistory(t *testing.T) {
	w := newWorld(t)
	step := item.Enqueue{Keys: keys, New: item.New{ID: "a", Seq: "1"}, Now: noon}
	other := item.Enqueue{Keys: keys, New: item.New{ID: "a", Seq: "2"}, Now: noon}
	from, end := step.History()
	history := func() []*mvccpb.Event {
		events, err := w.etcd.Events(watchOf(from, end))
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	w.do(step.Build())
	if _, known := step.Marked(nil, 100); known {
		t.Error("known without events")
	}
	w.do(item.Complete{Held: w.claim("s1"), Now: noon}.Build())
	mark := w.ask(step.Mark(0)).Header.Revision
	if put, known := step.Marked(history(), mark); !put || !known {
		t.Errorf("of the item: %v, %v", put, known)
	}
	if put, known := other.Marked(history(), mark); put || !known {
		t.Errorf("of another: %v, %v", put, known)
	}
}

func TestPromoteOnceFromWhereItWas(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon.Add(time.Hour))
	w.want("later")
	e := w.entry(keys.Later())
	promote := item.Promote{Keys: keys, Items: []*item.Entry{e}}.Build()
	w.do(promote)
	w.want("ready")
	held := w.claim("s1")
	w.do(promote)
	w.want("taken")
	w.do(item.Snooze{Held: held, Until: noon.Add(time.Hour), Now: noon}.Build())
	w.want("later")
	e = w.entry(keys.Later())
	if !e.State.Moved || e.State.Attempts != 0 {
		t.Errorf("%+v", e.State)
	}
	w.do(item.Promote{Keys: keys, Items: []*item.Entry{e}}.Build())
	p, err := item.Decode[item.Place](nil, w.under(keys.Place("a"))[0].Value)
	if err != nil || p.Verb != "vest" || keys.Placed(p) != w.entry(keys.Ready()).Key() {
		t.Errorf("%+v, %v", p, err)
	}
	if to, ok := keys.Vested(e.Key()); !ok || to != keys.Placed(p) {
		t.Errorf("%s vests to %s", e.Key(), to)
	}
}
