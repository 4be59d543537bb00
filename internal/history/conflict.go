package history

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"
)

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
