package history

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

// defaultGrace is TTL/3 + 1 s for the default TTL.
const defaultGrace = 6 * time.Second

// Checks configures the check of a history. The zero value is a good choice.
type Checks struct {
	// Grace is how long the holder of a key may count its term as held after the key
	// was taken away (History.Take). A client that reaches etcd notices within
	// TTL/3 + 1 s, any other at its deadline. Zero means 6 s, which is
	// TTL/3 + 1 s for the default TTL.
	Grace time.Duration
	// Steps limits the search for an order that explains the records of a key. A
	// search that reaches the limit is a violation of its own ([Undecided]). The limit
	// is a number of steps and not a time. So the result does not depend on the
	// machine, nor on the clock of a bubble, which stops during the search. Zero means
	// a million, or 100 for each record of the key if that is more. That takes about a
	// second and up to a few hundred megabytes.
	Steps int
}

// Verify checks the history like Check, and fails the test if a rule is broken. It does not
// end the test, and may be called more than once.
func (h *History) Verify(tb testing.TB, opts Checks) {
	tb.Helper()
	if err := h.Check(opts); err != nil {
		tb.Error(err)
	}
}

// Check checks the records so far by each [Rule]. It returns nil or [Violations].
//
// It does not show that anything happened at all, that a caller in line got the key, or
// that a write which was not recorded was fenced. Three things are not
// checked. Acquisitions that were refused or are unknown: there are many reasons to
// refuse one, and no process uses the claim that an unknown one left in etcd. Unknown
// effects: they may have been carried out, or may be later. And how long a lease
// lasts: it may lapse at any time, except at the moment of a [History.Checked].
func (h *History) Check(opts Checks) error {
	if vs := h.check(opts); len(vs) > 0 {
		return vs
	}
	return nil
}

func (h *History) check(opts Checks) Violations {
	grace := cmp.Or(opts.Grace, defaultGrace)
	p := newTimeline(h.snapshot())
	var vs Violations
	for _, k := range p.keys {
		vs = append(vs, k.oneOwner(p, grace)...)
		vs = append(vs, k.fencesRise(p)...)
		if v := k.linearizable(p, grace, opts.Steps); v != nil {
			vs = append(vs, v)
		}
	}
	for _, e := range p.open {
		vs = append(vs, &Violation{
			Rule: CallsReturn, Key: e.Key, Detail: fmt.Sprintf("%s of %q never returned", e.Kind, e.Process),
			Lines: p.lines(e.Seq),
		})
	}
	return vs
}

// belief is a period in which a process counts as the owner by its own knowledge.
type belief struct {
	t        *term
	from, to int64
}

// beliefs returns the periods of belief in the term, in order.
func (t *term) beliefs() []belief {
	if !t.alive {
		return nil
	}
	end := min(t.ended, t.died)
	from := t.ret.Seq
	var all []belief
	for _, r := range t.releases {
		if to := min(r.Seq, end); from < to {
			all = append(all, belief{t, from, to})
		}
		if r.outcome != didFailed {
			return all
		}
		from = max(from, r.ret.Seq)
	}
	if from < end {
		all = append(all, belief{t, from, end})
	}
	return all
}

// oneOwner finds beliefs that overlap. It reports the first overlap of each.
func (k *keyTimeline) oneOwner(p *timeline, grace time.Duration) Violations {
	var all []belief
	for _, t := range k.terms {
		all = append(all, t.beliefs()...)
	}
	slices.SortFunc(all, func(a, b belief) int { return cmp.Compare(a.from, b.from) })
	var vs Violations
	var active []belief
	for _, b := range all {
		active = slices.DeleteFunc(active, func(a belief) bool { return a.to <= b.from })
		for _, a := range active {
			old, young := a, b
			if old.t.ret.Fence > young.t.ret.Fence {
				old, young = young, old
			}
			from, to := b.from, min(a.to, b.to)
			if a.t == b.t || p.excused(k.tookFrom(p, old.t), grace, from, to) {
				continue
			}
			vs = append(vs, &Violation{
				Rule: OneOwner, Key: k.key, Fences: []int64{old.t.ret.Fence, young.t.ret.Fence},
				Detail: fmt.Sprintf("%q (fence %d) and %q (fence %d) both believed from #%d to %s, for %v",
					old.t.ret.Process, old.t.ret.Fence, young.t.ret.Process, young.t.ret.Fence,
					from, p.number(to), p.at(to).Sub(p.at(from))),
				Lines: p.lines(a.t.call.Seq, a.t.ret.Seq, a.to, b.t.call.Seq, b.t.ret.Seq, b.to),
			})
			break
		}
		active = append(active, b)
	}
	return vs
}

// number names a record, or the end.
func (p *timeline) number(seq int64) string {
	if seq >= p.never() {
		return "the end"
	}
	return fmt.Sprintf("#%d", seq)
}

// fencesRise finds grants whose fence is not greater than that of every grant
// that had returned before they were requested.
func (k *keyTimeline) fencesRise(p *timeline) Violations {
	var vs Violations
	report := func(detail string, ts ...*term) {
		v := &Violation{Rule: FencesRise, Key: k.key, Detail: detail}
		var seqs []int64
		for _, t := range ts {
			v.Fences = append(v.Fences, t.ret.Fence)
			seqs = append(seqs, t.call.Seq, t.ret.Seq)
		}
		v.Lines = p.lines(seqs...)
		vs = append(vs, v)
	}
	for i, t := range k.terms {
		if t.ret.Fence <= 0 {
			report(fmt.Sprintf("fence %d was granted, which a gate must refuse", t.ret.Fence), t)
		}
		if i > 0 && k.terms[i-1].ret.Fence == t.ret.Fence {
			report(fmt.Sprintf("fence %d was granted twice", t.ret.Fence), k.terms[i-1], t)
		}
	}
	byReturn := slices.Clone(k.terms)
	slices.SortFunc(byReturn, func(a, b *term) int { return cmp.Compare(a.ret.Seq, b.ret.Seq) })
	byCall := slices.Clone(k.terms)
	slices.SortFunc(byCall, func(a, b *term) int { return cmp.Compare(a.call.Seq, b.call.Seq) })
	var newest *term // of those that returned before t was called
	for _, t := range byCall {
		for len(byReturn) > 0 && byReturn[0].ret.Seq < t.call.Seq {
			if newest == nil || byReturn[0].ret.Fence > newest.ret.Fence {
				newest = byReturn[0]
			}
			byReturn = byReturn[1:]
		}
		if newest != nil && newest.ret.Fence > t.ret.Fence {
			report(fmt.Sprintf("fence %d was granted after fence %d", t.ret.Fence, newest.ret.Fence), newest, t)
		}
	}
	return vs
}
