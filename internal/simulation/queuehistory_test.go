package simulation

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
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
