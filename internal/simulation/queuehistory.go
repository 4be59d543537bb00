package simulation

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A model of one item of a queue, for porcupine: the calls as processes made them, in
// real time, and what nobody sees. The trace judges what etcd did; this judges what
// processes were told, without knowing anything of how the queue keeps its items.
//
// What nobody sees: that a lease ended with its process, which may have come at any time
// after the item was taken, also before the worker was told of it (who believes in it
// meanwhile the trace judges); that a process that was told nothing took the item, so that
// attempts are at least what the model counts; and whether a call of unknown outcome was
// carried out, which may still happen.

// Steps of the model.
const (
	stepEnqueue = "enqueue" // the item is there, from this call or from another
	stepClaim   = "claim"
	stepOver    = "over" // the lease is over, and the item waits again, or is dead
	stepGone    = "complete"
	stepRequeue = "requeue"
	stepBury    = "bury"
	stepCancel  = "cancel"
	stepRedrive = "redrive"
)

// itemStep is the input of an operation.
type itemStep struct {
	kind   string
	lease  int64 // the fence by which it was given to its worker
	sure   bool  // it was carried out; else it may have been
	beside bool  // another cancel of the item was under way: its removal can be taken for one's own
	who    string
}

func (s itemStep) String() string {
	sure := ""
	if !s.sure {
		sure = "?"
	}
	return fmt.Sprintf("%s%s @%d by %s", s.kind, sure, s.lease, s.who)
}

// itemState is what the model knows of an item.
type itemState struct {
	where   string // "", waiting, taken, dead, done
	lease   int64
	highest int64 // fence
}

// after returns the states that a step may lead to, if it is carried out.
func (s itemState) after(in itemStep) []itemState {
	waits, dead := itemState{"waiting", 0, s.highest}, itemState{"dead", 0, s.highest}
	mine := s.where == "taken" && s.lease == in.lease
	switch in.kind {
	case stepEnqueue:
		if s.where == "" {
			return []itemState{waits}
		}
		return []itemState{s}
	case stepClaim:
		// Dead, too: it may have been redriven by a call that does not know.
		if s.where == "waiting" && in.lease > s.highest {
			return []itemState{{"taken", in.lease, in.lease}}
		}
	case stepOver:
		if mine {
			return []itemState{waits, dead}
		}
		return []itemState{s}
	case stepGone:
		if mine {
			return []itemState{{"done", 0, s.highest}}
		}
	case stepRequeue:
		if mine {
			return []itemState{waits}
		}
	case stepBury:
		if mine {
			return []itemState{dead}
		}
	case stepCancel:
		if s.where == "waiting" || s.where == "dead" || in.beside && s.where == "" {
			return []itemState{{"", 0, s.highest}}
		}
	case stepRedrive:
		if s.where == "dead" || s.where == "waiting" { // it died under somebody who was told nothing
			return []itemState{waits}
		}
	}
	return nil
}

var itemModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{itemState{}} },
	Step: func(state, input, _ any) []any {
		in, s := input.(itemStep), state.(itemState)
		var next []any
		if !in.sure {
			next = append(next, s)
		}
		for _, to := range s.after(in) {
			next = append(next, to)
		}
		return next
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(input, _ any) string { return input.(itemStep).String() },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}

// mostSteps bounds the operations of an item that are looked at: a search that goes
// wrong tries every order.
const mostSteps = 40

// linearizable checks the calls that concern each item. After a restore of etcd, which
// undoes what was done, there is nothing to check.
func (qs *queueing) linearizable() {
	if qs.w.restored.Load() {
		return
	}
	items := map[string][]porcupine.Operation{}
	add := func(id string, in itemStep, from, to int64) {
		if !in.sure || to == 0 {
			to = math.MaxInt64
		}
		items[id] = append(items[id], porcupine.Operation{Input: in, Call: from, Return: to})
	}
	ended, begun, given := map[*queueLease]bool{}, map[*queueLease]int64{}, map[string]bool{}
	for _, c := range qs.calls {
		in, ok := qs.step(c)
		if !ok {
			continue
		}
		from := c.from
		if one := qs.leases[leaseName{c.id, c.fence}]; one != nil {
			// A verb may be answered by what an earlier call of it has done.
			if begun[one] == 0 {
				begun[one] = from
			}
			from = begun[one]
			ended[one] = ended[one] || in.sure
			given[c.id] = given[c.id] || one.given
		}
		add(c.id, in, from, c.to)
	}
	for one := range maps.Values(qs.leases) {
		if !slices.ContainsFunc(items[one.id], func(o porcupine.Operation) bool {
			in := o.Input.(itemStep)
			return in.kind == stepClaim && in.lease == one.fence
		}) {
			add(one.id, itemStep{kind: stepClaim, lease: one.fence, sure: true, who: one.p.name}, one.from, one.to)
			if !ended[one] {
				add(one.id, itemStep{kind: stepOver, lease: one.fence, who: one.p.name}, one.from, 0)
			}
		}
	}
	for id, ops := range items {
		if !given[id] { // two who have one lease can both be told that a verb was done
			markCancels(ops)
			qs.check(id, ops)
		}
	}
}

// markCancels marks the cancels of one item that overlap. Queue.Cancel resolves a lost
// reply by the history of the item, which does not name the call that removed it.
func markCancels(ops []porcupine.Operation) {
	for i := range ops {
		for j := range ops {
			a, b := ops[i].Input.(itemStep), ops[j].Input.(itemStep)
			if i != j && a.kind == stepCancel && b.kind == stepCancel && ops[i].Call <= ops[j].Return && ops[j].Call <= ops[i].Return {
				a.beside = true
				ops[i].Input = a
			}
		}
	}
}

// step is what a call is to the model, if it is anything.
func (qs *queueing) step(c *queueCall) (in itemStep, ok bool) {
	in = itemStep{sure: c.outcome == "done", who: c.p.name}
	if one := qs.leases[leaseName{c.id, c.fence}]; one != nil {
		in.lease = one.fence
	} else if c.fence != 0 {
		return in, false // of a lease that nobody was told of, or by a handle of it
	}
	switch c.verb {
	case "enqueue", "enqueue again":
		in.kind = stepEnqueue
	case "complete":
		in.kind = stepGone
	case "fail":
		if in.kind = stepRequeue; c.dead {
			in.kind = stepBury
		}
		if !in.sure {
			in.kind = stepOver
		}
	case "snooze", "release":
		in.kind = stepRequeue
	case "discard":
		in.kind = stepBury
	case "cancel":
		in.kind = stepCancel
	case "redrive":
		in.kind = stepRedrive
	}
	return in, in.kind != "" && c.outcome != "refused"
}

// check looks for an order that explains the calls that concern an item.
func (qs *queueing) check(id string, ops []porcupine.Operation) {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	if len(ops) > mostSteps {
		qs.w.count("histories of items too long to check")
		return
	}
	qs.w.count(countHistories)
	if !porcupine.CheckOperations(itemModel.ToModel(), ops) {
		text := ""
		for _, o := range ops {
			text += fmt.Sprintf("\n  %d to %d: %v", o.Call, o.Return, o.Input)
		}
		qs.w.fault("queue: no order explains what was told of item %s:%s", id, text)
	}
}
