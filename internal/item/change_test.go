package item_test

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/item"
)

func TestRedrive(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	w.do(item.Discard{Held: w.claim("s1"), Reason: "r", Now: noon}.Build())
	e := w.entry(keys.Dead())
	redrive := item.Redrive{Keys: keys, Entry: e, Now: noon}.Build()
	if !w.do(redrive).Succeeded || w.do(redrive).Succeeded {
		t.Error("not redriven once")
	}
	if e.Stands(w.ask(e.Reads()...)) {
		t.Error("the dead letter is still there")
	}
	w.want("ready")
	if st := w.entry(keys.Ready()).State; st.Attempts != 0 || len(st.History) != 1 {
		t.Errorf("%+v", st)
	}
}

// A later item has the payload of the last enqueue, and vests when none has come for a while, or it is due.
func TestDebounce(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon.Add(time.Minute))
	before := item.Content{Version: item.Version, Topic: "t", Seq: "a", Enqueued: noon}
	for i, want := range []time.Duration{70 * time.Second, 80 * time.Second, 90 * time.Second, 90 * time.Second} {
		now := noon.Add(time.Duration(10*(i+1)) * time.Second)
		step := item.Debounce{
			Keys: keys, Entry: w.entry(keys.Later()), Before: before, Payload: []byte{byte(i)},
			Quiet: time.Minute, Most: 90 * time.Second, Now: now,
		}
		if !w.do(step.Build()).Succeeded || w.do(step.Build()).Succeeded {
			t.Fatal("not replaced once")
		}
		w.want("later")
		e, kv := w.entry(keys.Later()), w.under(keys.Content("a"))[0]
		c, err := item.Decode[item.Content](kv.Key, kv.Value)
		if err != nil || c.Payload[0] != byte(i) || c.Topic != "t" || !c.Enqueued.Equal(noon) {
			t.Errorf("%+v, %v", c, err)
		}
		if at := noon.Add(want); !e.State.Vesting.Equal(at) || e.Key() != keys.LaterAt(c.Rank, at, "a") {
			t.Errorf("vests %v after noon at %s, want %v", e.State.Vesting.Sub(noon), e.Key(), want)
		}
	}
	last := item.Debounce{
		Keys: keys, Entry: w.entry(keys.Later()), Before: before, Quiet: time.Minute, Most: 90 * time.Second, Now: noon.Add(time.Hour),
	}
	w.do(last.Build())
	w.want("ready")
}

// Dead letters without content, and those whose place another version wrote, stay.
func TestRedriveAll(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		w.enqueue(id, noon)
		held := w.claim("s1")
		if id == "b" {
			w.delete(keys.Content("b"))
		}
		w.do(item.Discard{Held: held, Reason: "r", Empty: id == "b", Now: noon}.Build())
	}
	w.put(keys.Place("c"), `{"v":2}`)
	step := item.RedriveAll{Keys: keys}
	for _, kv := range w.under(keys.Dead()) {
		e, err := keys.Entry(kv)
		if err != nil {
			t.Fatal(err)
		}
		step.Letters = append(step.Letters, e)
	}
	for range 2 {
		done := step.Judge(w.do(step.Build()))
		if first := w.where() == "ready dead dead"; !first || done[1] || done[2] {
			t.Errorf("%v, %s", done, w.where())
		}
	}
}

func TestChangesOfAWaitingItem(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon.Add(time.Hour))
	e := w.entry(keys.Later())
	w.do(item.Promote{Keys: keys, Items: []*item.Entry{e}}.Build())
	visible := w.entry(keys.Ready())
	if w.do(item.Reprioritize{Keys: keys, Entry: e, Priority: 1, Now: noon}.Build()).Succeeded {
		t.Error("changed where it was before")
	}
	w.do(item.Reprioritize{Keys: keys, Entry: visible, Priority: 1, Now: noon}.Build())
	w.want("ready")
	after := w.entry(keys.Ready())
	if after.State.Priority != 1 || item.ByOrder(after, visible) >= 0 {
		t.Errorf("%+v", after)
	}
	if w.do(item.Cancel{Keys: keys, Entry: visible}.Build()).Succeeded || !w.do(item.Cancel{Keys: keys, Entry: after}.Build()).Succeeded {
		t.Error("not cancelled where it is")
	}
	w.want("")
}

func TestReplace(t *testing.T) {
	w := newWorld(t)
	w.enqueue("a", noon)
	w.do(item.Discard{Held: w.claim("s1"), Reason: "r", Now: noon}.Build())
	in := item.Replace{Keys: keys, Entry: w.entry(keys.Dead()), New: item.New{ID: "a", Seq: "2", Max: 5}, Now: noon}.Build()
	if !w.do(in).Succeeded || w.do(in).Succeeded {
		t.Error("not replaced once")
	}
	w.want("ready")
	if st := w.entry(keys.Ready()).State; st.Seq != "2" || st.Max != 5 || st.History != nil {
		t.Errorf("%+v", st)
	}
}

// What a restore of some keys leaves out is put again, unless it is there.
func TestHeal(t *testing.T) {
	for name, dead := range map[string]bool{"waiting": false, "dead": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.enqueue("a", noon)
			if dead {
				w.do(item.Discard{Held: w.claim("s1"), Now: noon}.Build())
				w.delete(w.entry(keys.Dead()).Key())
			} else {
				w.delete(w.entry(keys.Ready()).Key())
			}
			content := w.under(keys.Content("a"))[0]
			c, err := item.Decode[item.Content](content.Key, content.Value)
			if err != nil {
				t.Fatal(err)
			}
			step := item.Heal{Keys: keys, ID: "a", Content: c, Rev: content.ModRevision, Max: 2, Now: noon}
			where := "ready"
			if dead {
				place := w.under(keys.Place("a"))[0]
				if step.Placed, err = item.Decode[item.Place](place.Key, place.Value); err != nil {
					t.Fatal(err)
				}
				step.PlaceAt, where = place.ModRevision, "dead"
			}
			if !w.do(step.Build()).Succeeded || w.do(step.Build()).Succeeded {
				t.Error("not healed once")
			}
			w.want(where)
		})
	}
}

func TestDeactivateAnEmptyQueue(t *testing.T) {
	w := newWorld(t)
	w.ask(keys.Activate())
	w.enqueue("a", noon)
	if w.do(keys.Deactivate()).Succeeded {
		t.Error("a queue with an item is noted as empty")
	}
	w.do(item.Complete{Held: w.claim("s1"), Now: noon}.Build())
	if !w.do(keys.Deactivate()).Succeeded || len(w.under(keys.Active())) != 0 {
		t.Error("an empty queue is noted as one with work")
	}
}
