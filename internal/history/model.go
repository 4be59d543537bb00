package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model of one key. It has one step for each call whose outcome is known, and one
// for each term that ends, unseen, without a release: a lapse. A term
// ends once, by a release that was Done or by a lapse, so the model is
// deterministic. An unknown release may be carried out at any time. So may a
// lapse, so an unknown release adds no step.
//
// A lapse may come at any time after its grant. To shorten the search, its interval
// is narrowed: a lapse comes after every accepted call of its term, before the
// first refused one, and before the next grant. The model demands the same, so this
// changes no verdict.

// stepKind is the condition of a step on the state, and its change.
type stepKind int

const (
	stepGrant    stepKind = iota // free, and every fence before is lower: the owner from now on
	stepEnd                      // the owner, and no longer
	stepOwner                    // the owner
	stepNotOwner                 // not the owner
)

// nameLapse is the name of the step that ends a term without a release.
const nameLapse = "lapse"

// step is the input of an operation of the model.
type step struct {
	kind    stepKind
	fence   int64
	process string
	name    string   // of the call, for people
	seqs    [2]int64 // of the records between which it happened; of a lapse, those of the grant
}

// holding is the state of a key: 0 if it has no owner.
type holding struct{ owner, highest int64 }

func (s holding) after(in step) (holding, bool) {
	switch in.kind {
	case stepGrant:
		return holding{in.fence, in.fence}, s.owner == 0 && in.fence > s.highest
	case stepEnd:
		return holding{0, s.highest}, s.owner == in.fence
	case stepOwner:
		return s, s.owner == in.fence
	default:
		return s, s.owner != in.fence
	}
}

// search limits the steps of porcupine's search.
type search struct{ left atomic.Int64 }

func newSearch(steps int) *search {
	s := &search{}
	s.left.Store(int64(steps))
	return s
}

// step counts a step. Past the limit it returns false: then every step is illegal, which
// ends the search.
func (s *search) step() bool { return s.left.Add(-1) >= 0 }

// searchLimit returns how many steps the search for an order of the operations may take.
func searchLimit(steps int, ops []porcupine.Operation) int {
	return cmp.Or(steps, max(1_000_000, 100*len(ops)))
}

// model returns the model, whose steps the search limits.
func model(s *search) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return holding{} },
		Step: func(state, input, _ any) (bool, any) {
			if !s.step() {
				return false, state
			}
			next, ok := state.(holding).after(input.(step))
			return ok, next
		},
	}
}

func (in step) String() string { return fmt.Sprintf("%s @%d", in.name, in.fence) }

// linearizable returns a violation if no order of the calls explains them. It looks
// for a conflict of two calls first: in a wrong history the search would try every
// order of the other calls.
func (k *keyTimeline) linearizable(p *timeline, grace time.Duration, steps int) *Violation {
	ops := k.operations(p, grace)
	if len(ops) == 0 {
		return nil
	}
	if c := findConflict(ops); c != nil {
		return k.explain(p, ops, c)
	}
	limit := searchLimit(steps, ops)
	v := &Violation{
		Rule: Linearizable, Key: k.key,
		Detail: fmt.Sprintf("no order explains the %d operations, though no two of them conflict", len(ops)),
		Lines:  p.lines(ops[0].Input.(step).seqs[0], ops[len(ops)-1].Input.(step).seqs[1]),
	}
	ok, decided := explained(ops, limit)
	if ok {
		return nil
	}
	if !decided {
		v.Rule = Undecided
		v.Detail = fmt.Sprintf("no order that explains the %d operations was found within %d steps", len(ops), limit)
	}
	return v
}

// explained reports whether the model accepts some order of the operations, and whether
// the steps were enough to decide that.
func explained(ops []porcupine.Operation, steps int) (ok, decided bool) {
	s := newSearch(steps)
	ok = porcupine.CheckOperations(model(s), ops)
	return ok, ok || s.left.Load() >= 0
}

// operations returns the operations that the model has to explain.
func (k *keyTimeline) operations(p *timeline, grace time.Duration) []porcupine.Operation {
	var ops []porcupine.Operation
	// Doubled, so that something fits between two records.
	add := func(in step, from, to int64) {
		ops = append(ops, porcupine.Operation{Input: in, Call: from, Return: to})
	}
	addCall := func(kind stepKind, c *call, name string) {
		add(step{
			kind: kind, fence: c.Fence, process: c.Process, name: name,
			seqs: [2]int64{c.Seq, c.ret.Seq},
		}, 2*c.Seq, 2*p.returned(c))
	}
	lastOwned := map[int64]int64{}     // by fence: the last call that only its owner may make
	firstNotOwned := map[int64]int64{} // by fence: the first return that tells it is over
	notOwned := func(c *call) {
		if first := firstNotOwned[c.Fence]; first == 0 || c.ret.Seq < first {
			firstNotOwned[c.Fence] = c.ret.Seq
		}
	}
	for _, c := range k.effects {
		switch c.outcome {
		case didDone:
			addCall(stepOwner, c, "effect")
			lastOwned[c.Fence] = max(lastOwned[c.Fence], c.Seq)
		case didRefused:
			addCall(stepNotOwner, c, "refused effect")
			notOwned(c)
		}
	}
	for _, e := range k.checks {
		if t := k.granted[e.Fence]; t != nil && p.excused(k.tookFrom(p, t), grace, e.Seq, e.Seq) {
			continue
		}
		add(step{
			kind: stepOwner, fence: e.Fence, process: e.Process, name: "check", seqs: [2]int64{e.Seq, e.Seq},
		}, 2*e.Seq, 2*e.Seq)
		lastOwned[e.Fence] = max(lastOwned[e.Fence], e.Seq)
	}
	for _, c := range k.releases {
		if c.outcome == didRefused {
			addCall(stepNotOwner, c, "refused release")
			notOwned(c)
		}
		if c.outcome == didDone && k.granted[c.Fence] == nil {
			addCall(stepEnd, c, "release") // of what nobody was granted
		}
	}
	for _, t := range k.terms {
		fence := t.ret.Fence
		grant := step{kind: stepGrant, fence: fence, process: t.ret.Process, name: "grant", seqs: [2]int64{t.call.Seq, t.ret.Seq}}
		add(grant, 2*t.call.Seq, 2*t.ret.Seq)
		if k.granted[fence] != t {
			continue // the model refuses the second grant of a fence
		}
		r := t.release()
		if r != nil && r.outcome == didDone && !k.mayBeTaken(p, t, r) {
			addCall(stepEnd, r, "release")
			continue
		}
		end := step{kind: stepEnd, fence: fence, process: t.ret.Process, name: nameLapse, seqs: grant.seqs}
		from, to := max(t.call.Seq, lastOwned[fence]), t.next
		if first := firstNotOwned[fence]; first > 0 {
			to = min(to, first)
		}
		if r != nil && r.outcome == didDone {
			end.name, end.seqs = "release", [2]int64{t.call.Seq, r.ret.Seq}
			to = min(to, r.ret.Seq)
		}
		if to <= from {
			from = t.call.Seq // nothing can explain it: leave that to the search
		}
		if to <= from {
			to = p.never()
		}
		add(end, 2*from+1, 2*to)
	}
	return ops
}

// mayBeTaken reports whether a Take may have ended the term before its release
// returned. The release may then have found nothing to release: one that is sent
// again after a lost reply cannot distinguish these cases, and is Done in both.
func (k *keyTimeline) mayBeTaken(p *timeline, t *term, r *call) bool {
	return slices.ContainsFunc(k.tookFrom(p, t), func(c *call) bool { return c.Seq < r.ret.Seq })
}

// conflict is a pair of operations of a key of which one has to come first although
// it was called after the other had returned. Conflicts serve for readable messages;
// only the search decides whether a history is right.
type conflict struct {
	late  int // returned too early
	first int // has to come first; -1 if nothing could make late right
}

// stage is one term in the order that its operations must have: the grant, the calls
// that only the owner may make, and the end; then comes the term with the next fence.
// Calls that were refused to the owner come after the end.
type stage struct{ grants, owned, ends, notOwned []int }

// findConflict returns a conflict, or nil.
func findConflict(ops []porcupine.Operation) *conflict {
	stages := map[int64]*stage{}
	for i, op := range ops {
		in := op.Input.(step)
		s := stages[in.fence]
		if s == nil {
			s = &stage{}
			stages[in.fence] = s
		}
		switch in.kind {
		case stepGrant:
			s.grants = append(s.grants, i)
		case stepOwner:
			s.owned = append(s.owned, i)
		case stepEnd:
			s.ends = append(s.ends, i)
		case stepNotOwner:
			s.notOwned = append(s.notOwned, i)
		}
	}
	last := -1 // among the operations that must come first, the one called last
	for _, fence := range slices.Sorted(maps.Keys(stages)) {
		s := stages[fence]
		if wrong := s.nonsense(fence); wrong >= 0 {
			return &conflict{wrong, -1}
		}
		if len(s.grants) == 0 {
			continue
		}
		for _, group := range [][]int{s.grants, s.owned, s.ends, s.notOwned} {
			before := last
			for _, i := range group {
				if returnedBefore(ops, i, before) {
					return &conflict{i, before}
				}
				in := ops[i].Input.(step)
				if in.name == nameLapse || in.kind == stepNotOwner {
					continue // makes nothing else wait
				}
				if last < 0 || called(ops, i) > called(ops, last) {
					last = i
				}
			}
		}
	}
	return nil
}

// nonsense returns an operation that is wrong in any order, or -1.
func (s *stage) nonsense(fence int64) int {
	switch {
	case len(s.grants) > 0 && fence <= 0:
		return s.grants[0]
	case len(s.grants) > 1:
		return s.grants[1]
	case len(s.grants) == 0 && len(s.owned) > 0:
		return s.owned[0]
	case len(s.grants) == 0 && len(s.ends) > 0:
		return s.ends[0]
	}
	return -1
}

func called(ops []porcupine.Operation, i int) int64 { return ops[i].Input.(step).seqs[0] }

func returnedBefore(ops []porcupine.Operation, i, other int) bool {
	in := ops[i].Input.(step)
	return other >= 0 && in.name != nameLapse && in.seqs[1] < called(ops, other)
}

// explain describes a conflict.
func (k *keyTimeline) explain(p *timeline, ops []porcupine.Operation, c *conflict) *Violation {
	late := ops[c.late].Input.(step)
	v := &Violation{Rule: Linearizable, Key: k.key, Fences: []int64{late.fence}}
	seqs := late.seqs[:]
	if c.first < 0 {
		v.Detail = fmt.Sprintf("%s of %q: that fence was granted to nobody", late, late.process)
		if late.kind == stepGrant {
			v.Detail = fmt.Sprintf("%s of %q: that fence was granted before, or is none", late, late.process)
		}
	} else {
		first := ops[c.first].Input.(step)
		v.Detail = fmt.Sprintf("%s of %q (#%d to #%d) has to come before %s of %q (#%d to #%d), and was called after that had returned",
			first, first.process, first.seqs[0], first.seqs[1], late, late.process, late.seqs[0], late.seqs[1])
		seqs = append(seqs, first.seqs[:]...)
		if first.fence != late.fence {
			v.Fences = append(v.Fences, first.fence)
		}
	}
	for _, fence := range v.Fences {
		if t := k.granted[fence]; t != nil {
			seqs = append(seqs, t.call.Seq, t.ret.Seq, t.ended, t.died)
			for _, r := range t.releases {
				seqs = append(seqs, r.Seq, r.ret.Seq)
			}
		}
	}
	slices.Sort(v.Fences)
	v.Lines = p.lines(seqs...)
	return v
}
