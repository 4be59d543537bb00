package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A lock's term, as a [LockModel] sees it, is identified by process and fence, since
// each handle of a reentrant claim is recorded. Fences serve as names there even where
// they are not compared.
//
// A term may lapse if no release of it is known to be done. The model is then most
// lenient, and deterministic, if the term lapses right after the last step that shows
// it held: nothing that follows could need it. So the steps of such a term are counted
// in advance, and no step stands for the lapse itself.

// lockVerb is what a lockStep does.
type lockVerb string

const (
	lockAcquire lockVerb = "acquire"
	lockRelease lockVerb = "release"
	lockUse     lockVerb = "use"
)

// lockStep is the input of an operation of a LockModel.
type lockStep struct {
	verb    lockVerb
	process string
	fence   int64
	term    int      // which one of its process with the fence, if a fence can come again
	seqs    [2]int64 // of the records of its call and return
	// known are the steps of its term that are known, the acquisitions among them, if
	// the term may lapse.
	lapses bool
	known  counts
}

// reads reports whether the step is a reader's.
func (in lockStep) reads() bool { return strings.HasPrefix(in.process, readerPrefix) }

func (in lockStep) String() string { return fmt.Sprintf("%s @%d", in.verb, in.fence) }

// counts are the steps of a term that are still to come.
type counts struct{ acquires, releases, uses int }

// operations returns the operations that the model has to explain.
func (m LockModel) operations(k *keyTimeline, p *timeline, opts Checks) []porcupine.Operation {
	type name struct {
		process string
		fence   int64
		term    int
	}
	// A reader can get the fence of other readers again. Its calls are about its last term.
	named := func(process string, fence, seq int64) name {
		of := name{process: process, fence: fence}
		for _, t := range k.terms {
			if m.kind.readers && t.ret.Process == process && t.ret.Fence == fence && t.ret.Seq <= seq {
				of.term++
			}
		}
		return of
	}
	lapses, known := map[name]bool{}, map[name]counts{}
	var steps []lockStep
	add := func(verb lockVerb, process string, fence, from, to int64) {
		of := named(process, fence, to)
		steps = append(steps, lockStep{verb: verb, process: process, fence: fence, term: of.term, seqs: [2]int64{from, to}})
		n := known[of]
		switch verb {
		case lockAcquire:
			n.acquires++
		case lockRelease:
			n.releases++
		case lockUse:
			n.uses++
		}
		known[of] = n
	}
	first := map[name]bool{}
	for _, t := range k.terms {
		of := name{process: t.ret.Process, fence: t.ret.Fence}
		if m.kind.reentrant && first[of] && p.excused(m.mayHaveTaken(k, p, t.ret.Fence), cmp.Or(opts.Grace, defaultGrace), t.call.Seq, t.ret.Seq) {
			continue // shared within its client, which had not heard of the take yet
		}
		first[of] = true
		add(lockAcquire, t.ret.Process, t.ret.Fence, t.call.Seq, t.ret.Seq)
	}
	for _, c := range k.releases {
		switch {
		case c.outcome != didDone:
		case k.ended[c.Fence] > 0 && k.ended[c.Fence] < c.ret.Seq: // only the last handle of a reentrant claim asks etcd
			lapses[named(c.Process, c.Fence, c.ret.Seq)] = true
		case slices.ContainsFunc(m.mayHaveTaken(k, p, c.Fence), func(take *call) bool { return take.Seq < c.ret.Seq }): // it may have found nothing to release
			lapses[named(c.Process, c.Fence, c.ret.Seq)] = true
		default:
			add(lockRelease, c.Process, c.Fence, c.Seq, c.ret.Seq)
		}
	}
	for _, c := range k.effects {
		if c.outcome == didDone {
			add(lockUse, c.Process, c.Fence, c.Seq, c.ret.Seq)
		}
	}
	for _, e := range k.checks {
		if !p.excused(m.mayHaveTaken(k, p, e.Fence), cmp.Or(opts.Grace, defaultGrace), e.Seq, e.Seq) {
			add(lockUse, e.Process, e.Fence, e.Seq, e.Seq)
		}
	}
	ops := make([]porcupine.Operation, 0, len(steps))
	for _, in := range steps {
		of := name{in.process, in.fence, in.term}
		in.known = known[of]
		in.lapses = lapses[of] || in.known.releases < in.known.acquires
		ops = append(ops, porcupine.Operation{Input: in, Call: 2 * in.seqs[0], Return: 2 * in.seqs[1]})
	}
	return ops
}

// mayHaveTaken returns the takes that may have ended the term with the fence. A greater
// fence does not mean that the term is over: it may be that of another slot. A fence that
// readers share does not say when the term of one of them began.
func (m LockModel) mayHaveTaken(k *keyTimeline, p *timeline, fence int64) []*call {
	if m.kind.readers {
		return k.takes
	}
	t := k.granted[fence]
	return slices.DeleteFunc(slices.Clone(k.takes), func(c *call) bool { return t == nil || p.returned(c) <= t.call.Seq })
}

// hold is what a process holds of a lock by one fence.
type hold struct {
	process string
	fence   int64
	term    int
	n       int
	lapses  bool
	left    counts
}

// lockState is the state of a lock. Holds are in the order of processes and fences.
type lockState struct {
	holds   []hold
	highest int64 // fence
	written int64 // the highest fence of a writer
}

func (m LockModel) model(s *search) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			if !s.step() {
				return false, state
			}
			next, ok := m.after(state.(lockState), input.(lockStep))
			return ok, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(lockState), b.(lockState)
			return x.highest == y.highest && x.written == y.written && slices.Equal(x.holds, y.holds)
		},
		DescribeOperation: func(input, _ any) string { return input.(lockStep).String() },
		DescribeState:     func(state any) string { return state.(lockState).String() },
	}
}

func (s lockState) String() string {
	if len(s.holds) == 0 {
		return fmt.Sprintf("free after %d", s.highest)
	}
	var all []string
	for _, h := range s.holds {
		all = append(all, fmt.Sprintf("%s @%d ×%d", h.process, h.fence, h.n))
	}
	return strings.Join(all, ", ")
}

// after returns the state after the step, or false if the model does not allow it.
func (m LockModel) after(s lockState, in lockStep) (lockState, bool) {
	s.holds = slices.Clone(s.holds)
	at := slices.IndexFunc(s.holds, func(h hold) bool { return h.process == in.process && h.fence == in.fence && h.term == in.term })
	switch in.verb {
	case lockAcquire:
		if !m.mayAcquire(s, in, at) {
			return s, false
		}
		s.highest = max(s.highest, in.fence)
		if !in.reads() {
			s.written = max(s.written, in.fence)
		}
		if at < 0 {
			at = len(s.holds)
			s.holds = append(s.holds, hold{process: in.process, fence: in.fence, term: in.term, lapses: in.lapses, left: in.known})
		}
		s.holds[at].n++
		s.holds[at].left.acquires--
	case lockRelease:
		if at < 0 {
			return s, false
		}
		s.holds[at].n--
		s.holds[at].left.releases--
	case lockUse:
		if at < 0 {
			return s, false
		}
		s.holds[at].left.uses--
	}
	if h := &s.holds[at]; h.lapses {
		h.n = m.needed(*h)
	}
	if s.holds[at].n <= 0 {
		s.holds = slices.Delete(s.holds, at, at+1)
	}
	slices.SortFunc(s.holds, func(a, b hold) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.fence, b.fence), a.term-b.term)
	})
	return s, true
}

// mayAcquire reports whether the acquisition is right. The hold at the index has the
// same process and fence.
func (m LockModel) mayAcquire(s lockState, in lockStep, at int) bool {
	n := 0
	for _, h := range s.holds {
		n += h.n
	}
	switch {
	case m.kind.permits:
		return n < m.most
	case m.kind.readers && in.reads():
		return in.fence > s.written && in.fence >= s.highest && (n == 0 || s.holds[0].fence == in.fence)
	case n == 0:
		return !m.kind.fenced || in.fence > s.highest
	case !m.kind.reentrant || n >= m.most:
		return false
	case m.kind.fenced:
		return at >= 0
	default:
		return s.holds[0].process == in.process
	}
}

// needed returns how much of a term that may lapse must still be held for the steps to
// come.
func (m LockModel) needed(h hold) int {
	least := h.left.releases
	if h.left.uses > 0 || m.kind.reentrant && h.left.acquires > 0 {
		least = max(least, 1)
	}
	if m.kind.reentrant && least > 0 {
		return h.n // a reentrant term lapses as a whole
	}
	return min(h.n, least)
}
