package simulation

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/etcdclaims/claims/internal/history"
)

// The model of an item accepts what may happen to it, and nothing else.
func TestItemModel(t *testing.T) {
	sure := func(kind string, lease int64) itemStep { return itemStep{kind: kind, lease: lease, sure: true} }
	lost := func(lease int64) itemStep { return itemStep{kind: stepOver, lease: lease} }
	unknown := func(kind string, lease int64) itemStep { return itemStep{kind: kind, lease: lease} }
	for name, c := range map[string]struct {
		steps []itemStep
		legal bool
	}{
		"done":                          {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), sure(stepGone, 5)}, true},
		"again after a failure":         {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), sure(stepRequeue, 5), sure(stepClaim, 6)}, true},
		"again after a loss":            {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), lost(5), sure(stepClaim, 6)}, true},
		"to two at once":                {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), sure(stepClaim, 6)}, false},
		"to two, and then lost":         {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), sure(stepClaim, 6), lost(5)}, false},
		"completed twice":               {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), sure(stepGone, 5), sure(stepGone, 5)}, false},
		"completed by who lost it":      {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), lost(5), sure(stepClaim, 6), sure(stepGone, 5)}, false},
		"a fence that falls":            {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), sure(stepRequeue, 5), sure(stepClaim, 4)}, false},
		"claimed and never enqueued":    {[]itemStep{sure(stepClaim, 5)}, false},
		"claimed after an unknown fail": {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), unknown(stepRequeue, 5), sure(stepClaim, 6)}, true},
		"claimed after completion":      {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), sure(stepGone, 5), sure(stepClaim, 6)}, false},
		"cancelled while taken":         {[]itemStep{sure(stepEnqueue, 0), sure(stepClaim, 5), sure(stepCancel, 0), sure(stepGone, 5)}, false},
	} {
		var ops []porcupine.Operation
		for i, s := range c.steps {
			to := int64(2*i + 1)
			if !s.sure {
				to = math.MaxInt64
			}
			ops = append(ops, porcupine.Operation{Input: s, Call: int64(2 * i), Return: to})
		}
		if got := porcupine.CheckOperations(itemModel.ToModel(), ops); got != c.legal {
			t.Errorf("%s: legal %t, want %t", name, got, c.legal)
		}
	}
}

// Of two cancels of an item, both can be told that it is removed if they overlap.
func TestOverlappingCancels(t *testing.T) {
	for _, from := range []int64{4, 6} { // of the second cancel; the first one lasts from 3 to 5
		ops := []porcupine.Operation{
			{Input: itemStep{kind: stepEnqueue, sure: true}, Call: 1, Return: 2},
			{Input: itemStep{kind: stepCancel, sure: true}, Call: 3, Return: 5},
			{Input: itemStep{kind: stepCancel, sure: true}, Call: from, Return: 7},
		}
		markCancels(ops)
		if got, want := porcupine.CheckOperations(itemModel.ToModel(), ops), from == 4; got != want {
			t.Errorf("the second cancel from %d: legal %t, want %t", from, got, want)
		}
	}
}

// A lease can be over, and its item another's, before the call that claimed it returns.
func TestLeaseOverBeforeItIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		from, to int64 // of the first claim; the second one lasts from 5 to 6
		legal    bool
	}{"overlapping": {4, 7, true}, "before": {3, 4, true}, "after": {7, 8, false}} {
		w := &world{history: history.New(), counts: map[string]int{}}
		p := &process{name: "p"}
		qs := &queueing{w: w, leases: map[leaseName]*queueLease{
			{"a", 11}: {p: p, id: "a", fence: 11, from: c.from, to: c.to},
			{"a", 12}: {p: p, id: "a", fence: 12, from: 5, to: 6},
		}}
		qs.calls = []*queueCall{
			{p: p, verb: "enqueue", id: "a", outcome: "done", from: 1, to: 2},
			{p: p, verb: "complete", id: "a", fence: 12, outcome: "done", from: 9, to: 10},
		}
		qs.linearizable()
		if legal := len(w.faults) == 0; legal != c.legal {
			t.Errorf("%s: %v", name, w.faults)
		}
	}
}
