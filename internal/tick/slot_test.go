package tick_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A slot is taken while there is the record of the run that has taken it, and free when that is gone, whether or
// not the key of the slot is.
func TestSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(j *tick.Job) { j.Overlap, j.CatchUp, j.CatchUpMax = tick.Allow, tick.All, 9 })
	w.admit(at(3))
	key := w.Slot("l", 0)
	begin := func(slot tick.Slot) (tick.Run, int64) {
		first := w.waiting()[0]
		run := tick.Run{Ready: first.Ready, Claim: tick.RunClaim("g", "a", first.ID, false), Slots: map[string]int{"l": 0}}
		in := tick.Begin{Keys: w.Keys, Tick: first, Run: run, Value: tick.Encode(run), Slots: []tick.Slot{slot}}.Build()
		if r := w.do(in); r.Succeeded {
			return run, r.Rev
		}
		return run, 0
	}
	run, rev := begin(tick.Slot{Key: key})
	if slots := w.under(w.Slots("l")); rev == 0 || len(slots) != 1 || slots[0].ModRevision != rev {
		t.Fatalf("run %d has not the slot: %v", rev, slots)
	}
	if _, twice := begin(tick.Slot{Key: key}); twice != 0 {
		t.Error("the slot was taken twice")
	}
	was := tick.Slot{Key: key, Rev: rev, Value: tick.Encode(run.Holder("l")), Last: run.Holder("l")}
	if _, twice := begin(was); twice != 0 {
		t.Error("the slot was taken from a run that is recorded")
	}
	w.do(&pb.TxnRequest{Success: []*pb.RequestOp{txn.Delete([]byte(w.Run("a", run.ID)))}})
	other := was
	other.Value = tick.Encode(tick.Run{}.Holder("l"))
	if _, twice := begin(other); twice != 0 {
		t.Error("a slot was taken that has another value since a restore")
	}
	next, taken := begin(was)
	if taken == 0 {
		t.Fatal("the slot was not free when the record was gone")
	}
	late := tick.End{Keys: w.Keys, Job: w.job, Run: run, Value: tick.Encode(run), Began: rev, Past: run.Past()}
	if w.do(late.Build()).Succeeded || len(w.under(w.Slots("l"))) != 1 {
		t.Error("the end of the run before has freed the slot")
	}
	two := tick.End{Keys: w.Keys, Job: w.job, Run: next, Value: tick.Encode(next), Began: taken - 1, Past: next.Past()}
	if before := w.etcd; !w.do(two.Build()).Succeeded || len(w.under(w.Slots("l"))) != 1 {
		t.Error("the end of a run has freed the slot that another run has taken since")
	} else {
		w.etcd = before
	}
	settle := tick.Settle{Standing: w.standing(at(3)), Run: next, Rev: taken, Past: next.Past(), Begun: true}
	if left := w.do(settle.Build()); !left.Succeeded || len(w.under(w.Slots("l"))) != 0 {
		t.Errorf("left: %v", w.under(w.Slots("l")))
	}
}
