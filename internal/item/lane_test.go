package item_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// tenant puts items of one partition key into the queue.
func (w *world) tenant(key string, ids ...string) {
	w.Helper()
	for _, id := range ids {
		in := item.New{ID: id, Seq: id, Priority: item.DefaultPriority, Vesting: noon, Max: 2, Key: key}
		if resp := w.do((item.Enqueue{Keys: keys, New: in, Now: noon}).Build()); !resp.Succeeded {
			w.Fatalf("%s is not enqueued", id)
		}
	}
}

// turns reads whose turn it is.
func (w *world) turns(digest string) []item.Turn {
	w.Helper()
	step := item.Turns{Keys: keys, Looks: []item.Look{{Digest: digest}}, Now: noon}
	found := step.Judge(w.ask(step.Build()...))
	if found.Unreadable != nil {
		w.Error(found.Unreadable)
	}
	return found.Turns
}

// advance makes items visible, and returns how many.
func (w *world) advance(turns []item.Turn) (n int) {
	w.Helper()
	step := item.Advance{Keys: keys, Turns: turns}
	for _, done := range step.Judge(w.do(step.Build())) {
		if done {
			n++
		}
	}
	return n
}

func (w *world) digest() string { return keys.LaneDigest(string(w.under(keys.Behind())[0].Key)) }

// next claims the next item of the key once it has its turn.
func (w *world) next(digest, id string) item.Held {
	w.Helper()
	w.advance(w.turns(digest))
	held := w.claim("s1")
	if held.State.ID != id {
		w.Errorf("claimed %s, want %s", held.State.ID, id)
	}
	return held
}

// An item keeps the turn of its key until it is completed, cancelled or dead.
func TestTurnsOfAKey(t *testing.T) {
	w := newWorld(t)
	w.tenant("k", "a", "b", "c", "d", "e")
	digest := w.digest()
	held := w.next(digest, "a")
	for verb, end := range map[string]func(){
		"release": func() { w.do(item.Release{Held: held, Now: noon}.Build()) },
		"fail":    func() { w.do(item.Fail{Held: held, Cause: "x", Now: noon}.Build()) },
		"snooze":  func() { w.do(item.Snooze{Held: held, Until: noon, Now: noon}.Build()) },
		"give back": func() {
			in, _ := item.GiveBack{Keys: keys, Taken: w.under(keys.Taken()), Now: noon}.Build()
			w.do(in)
		},
	} {
		end()
		if turns := w.turns(digest); len(turns) != 0 {
			t.Errorf("after %s it is the turn of %s", verb, turns[0].State.ID)
		}
		held = w.claim("s1")
		held.State.Attempts = 1
	}
	w.do(item.Complete{Held: held, Now: noon}.Build())
	held = w.next(digest, "b")
	w.do(item.Fail{Held: held, Permanent: true, Now: noon}.Build())
	held = w.next(digest, "c")
	w.do(item.Discard{Held: held, Now: noon}.Build())
	held = w.next(digest, "d")
	held.State.Attempts = 2
	w.put(held.Key(), item.Encode(held.State))
	w.delete(keys.Own("s1"))
	in, _ := item.Recover{Keys: keys, Session: "s1", Taken: w.under(keys.Taken()), Now: noon}.Build()
	w.do(in)
	w.advance(w.turns(digest))
	w.do(item.Cancel{Keys: keys, Entry: w.entry(keys.Ready())}.Build())
	if left := w.under(keys.Lanes()); len(left) != 0 {
		t.Errorf("left: %s", left[0].Key)
	}
	w.want("dead dead dead")
}

// An item that is cancelled while a worker has it frees its lane.
func TestCancelTakenFreesTheLane(t *testing.T) {
	w := newWorld(t)
	w.tenant("k", "a", "b")
	digest := w.digest()
	w.next(digest, "a")
	e, err := keys.Entry(w.under(keys.Taken())[0])
	if err != nil {
		t.Fatal(err)
	}
	if in := (item.CancelTaken{Keys: keys, Entry: e}).Build(); !w.do(in).Succeeded {
		t.Error("not cancelled")
	}
	w.next(digest, "b")
}

// An item that comes before those that wait is not passed, and one lane is not given twice.
func TestTurnIsOfTheFirst(t *testing.T) {
	w := newWorld(t)
	w.tenant("k", "b", "c")
	digest := w.digest()
	turns := w.turns(digest)
	w.tenant("k", "a")
	if n := w.advance(turns); n != 0 {
		t.Error("an item was passed")
	}
	first := w.turns(digest)
	if n := w.advance(first) + w.advance(first) + w.advance(turns); n != 1 {
		t.Errorf("%d items were made visible", n)
	}
	w.claim("s1")
	w.want("taken")
}

// With more lanes as many are visible.
func TestTurnsOfSeveralLanes(t *testing.T) {
	w := newWorld(t)
	w.tenant("k", "a", "b", "c", "d", "e")
	digest := w.digest()
	step := item.Turns{Keys: item.NewKeys("/c/", item.Spec{Name: "orders", KeyLimit: 3}), Looks: []item.Look{{Digest: digest}}}
	turns := step.Judge(w.ask(step.Build()...)).Turns
	if n := w.advance(turns); n != 3 {
		t.Errorf("%d items were made visible", n)
	}
	if turns = step.Judge(w.ask(step.Build()...)).Turns; len(turns) != 0 {
		t.Errorf("it is the turn of %s, too", turns[0].State.ID)
	}
	w.want("ready ready ready")
	if lanes := w.under(keys.Lanes()); len(lanes) != 3 || !strings.HasSuffix(string(lanes[2].Key), "/00003") {
		t.Errorf("lanes: %v", lanes)
	}
}

// An item that vests goes behind its key, and one that has its turn is visible.
func TestPromoteOfAKey(t *testing.T) {
	w := newWorld(t)
	w.tenant("k", "a")
	digest := w.digest()
	held := w.next(digest, "a")
	w.do(item.Snooze{Held: held, Until: noon.Add(time.Hour), Now: noon}.Build())
	in := item.New{ID: "b", Seq: "b", Vesting: noon.Add(time.Hour), Max: 2, Key: "k"}
	w.do((item.Enqueue{Keys: keys, New: in, Now: noon}).Build())
	w.want("later later")
	var all []*item.Entry
	for _, kv := range w.under(keys.Later()) {
		e, err := keys.Entry(kv)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	w.do(item.Promote{Keys: keys, Items: all}.Build())
	if e := w.entry(keys.Ready()); e.State.ID != "a" || w.entry(keys.Behind()).State.ID != "b" {
		t.Errorf("%s is visible", e.State.ID)
	}
	if room := keys.JudgeRoom(w.ask(keys.ReadRoom()...)); room.Waiting != 2 {
		t.Errorf("%d items wait", room.Waiting)
	}
	w.do(item.Reprioritize{Keys: keys, Entry: w.entry(keys.Behind()), Priority: 1, Now: noon}.Build())
	if w.do(keys.Deactivate()).Succeeded || w.entry(keys.Behind()).State.Priority != 1 {
		t.Error("an item that waits for its turn is not there")
	}
}

// A lane is freed only if its item is gone, and an item that is healed keeps its lane.
func TestHealOfLanes(t *testing.T) {
	for name, broken := range map[string]struct {
		change func(w *world, held item.Held)
		frees  bool
	}{
		"taken":             {func(*world, item.Held) {}, false},
		"nowhere":           {func(w *world, held item.Held) { w.delete(held.Key()) }, false},
		"without a content": {func(w *world, _ item.Held) { w.delete(keys.Content("a")) }, true},
		"another": {func(w *world, held item.Held) {
			w.delete(keys.Content("a"))
			w.put(keys.Content("a"), `{"v":1,"seq":"other"}`)
		}, true},
		"unreadable": {func(w *world, held item.Held) {
			w.put(held.Key(), "?")
			w.delete(keys.Own("s1"))
			in, _ := item.Recover{Keys: keys, Session: "s1", Taken: w.under(keys.Taken()), Now: noon}.Build()
			w.do(in)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("k", "a")
			held := w.next(w.digest(), "a")
			broken.change(w, held)
			if n := keys.JudgeLane(w.ask(keys.LaneOf("k")...), "a", "a"); n != 1 {
				t.Errorf("lane %d", n)
			}
			step := item.FreeLane{Keys: keys, Lane: w.under(keys.Lanes())[0]}
			free := step.Judge(w.ask(step.Reads()...))
			if (free != nil) != broken.frees || free != nil && (!w.do(free).Succeeded || len(w.under(keys.Lanes())) > 0) {
				t.Errorf("frees: %v", free)
			}
		})
	}
}

// An item frees no lane that another has by now, however it ends.
func TestLaneOfAnother(t *testing.T) {
	for name, end := range map[string]func(w *world, held item.Held){
		"complete": func(w *world, held item.Held) { w.do(item.Complete{Held: held, Now: noon}.Build()) },
		"bury":     func(w *world, held item.Held) { w.do(item.Fail{Held: held, Permanent: true, Now: noon}.Build()) },
		"cancel": func(w *world, held item.Held) {
			w.do(item.Release{Held: held, Now: noon}.Build())
			w.do(item.Cancel{Keys: keys, Entry: w.entry(keys.Ready())}.Build())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("k", "a", "b")
			digest := w.digest()
			held := w.next(digest, "a")
			w.delete(keys.Content("a"))
			free := item.FreeLane{Keys: keys, Lane: w.under(keys.Lanes())[0]}
			w.do(free.Judge(w.ask(free.Reads()...)))
			w.advance(w.turns(digest))
			w.claim("s2")
			end(w, held)
			if lanes := w.under(keys.Lanes()); len(lanes) != 1 || string(lanes[0].Value) != "b/b" {
				t.Errorf("lanes: %v", lanes)
			}
		})
	}
}

// A dead letter of which the state was unreadable as it died frees its lane as it is redriven, and has no turn then.
func TestRedriveFreesTheLane(t *testing.T) {
	for name, redrive := range map[string]func(e *item.Entry) *pb.TxnRequest{
		"one": func(e *item.Entry) *pb.TxnRequest { return item.Redrive{Keys: keys, Entry: e, Now: noon}.Build() },
		"all": func(e *item.Entry) *pb.TxnRequest {
			return item.RedriveAll{Keys: keys, Letters: []*item.Entry{e}}.Build()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.tenant("k", "a")
			held := w.next(w.digest(), "a")
			w.put(held.Key(), "?")
			w.delete(keys.Own("s1"))
			in, _ := item.Recover{Keys: keys, Session: "s1", Taken: w.under(keys.Taken()), Now: noon}.Build()
			w.do(in)
			place := w.under(keys.Place("a"))[0]
			w.ask(txn.Put(w.under(keys.Dead())[0].Key, item.Encode(held.State), int64(0)), txn.Put(place.Key, string(place.Value), int64(0)))
			w.do(redrive(w.entry(keys.Dead())))
			if e := w.entry(keys.Behind()); e.State.Lane != 0 || len(w.under(keys.Lanes())) != 0 {
				t.Errorf("%s, and %d lanes", e.KV.Value, len(w.under(keys.Lanes())))
			}
		})
	}
}

// An item without a content frees its lane also if another one has its id by now.
func TestDiscardEmptyFreesTheLane(t *testing.T) {
	w := newWorld(t)
	w.tenant("k", "a")
	held := w.next(w.digest(), "a")
	w.put(keys.Content("a"), `{"v":1,"seq":"other"}`)
	w.do(item.Discard{Held: held, Empty: true, Now: noon}.Build())
	if lanes := w.under(keys.Lanes()); len(lanes) != 0 {
		t.Errorf("left: %s", lanes[0].Key)
	}
}

// Lanes of a limit that was higher count.
func TestTurnsOfALowerLimit(t *testing.T) {
	w := newWorld(t)
	w.tenant("k", "a", "b", "c", "d", "e")
	digest := w.digest()
	step := item.Turns{Keys: item.NewKeys("/c/", item.Spec{Name: "orders", KeyLimit: 3}), Looks: []item.Look{{Digest: digest}}}
	turns := step.Judge(w.ask(step.Build()...)).Turns
	w.advance(turns)
	w.delete(string(w.under(keys.Lanes())[0].Key))
	if turns := w.turns(digest); len(turns) != 0 {
		t.Errorf("it is the turn of %s beside two others", turns[0].State.ID)
	}
}
