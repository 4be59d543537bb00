package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
)

// A verdict is what the evidence shows. What must not be is in findings; the
// rest are figures.
type verdict struct {
	effects      int // that etcd has
	acknowledged int // of them and of elements, and known to their worker
	refused      int // by the fence, at etcd or before
	refusedRaw   int // of these, by etcd alone: requests that no clock held back
	failed       int
	unknown      int // reported as unknown
	cut          int // intents of workers that were killed before a reply
	applied      int // of unknown and cut
	notApplied   int
	odd          []string

	queued, completed int // items of the queue, as acknowledged to workers
	maybeDone, untold int
	claimed           int
	claimedAgain      int
	elements          int // of the set
	suspicions        suspicions
	unwitnessed       int // effects whose owner could not be looked up, in gaps of the observer

	stale    []string // accepted though another owned the key, or nobody
	answers  []string // acknowledged and lost, refused and carried out, or carried out twice
	lost     []string // items that were never done
	doubled  []string // put twice
	unasked  []string // carried out though nobody intended them
	barred   []string // suspicions that the options do not allow
	overtime []string // pick-ups that took too long, and keys that stayed stuck
	ends     []string // workers that ended by themselves, or did not end when told to
}

// held reports whether everything did.
func (v *verdict) held() bool {
	return len(v.stale)+len(v.lost)+len(v.doubled)+len(v.answers)+len(v.unasked)+len(v.barred)+len(v.overtime)+len(v.ends) == 0
}

// judge compares what workers intended and were told with what etcd has.
func judge(ev *evidence) *verdict {
	v := &verdict{}
	intents, outcomes := map[string]entry{}, map[string]entry{}
	for _, e := range ev.journals {
		switch e.Op {
		case opIntent:
			intents[e.ID] = e
		case opOdd:
			v.odd = append(v.odd, e.Note)
		case opEnqueued, opClaimed, opCompleted, opMaybeDone: // see judgeQueue
		case opSuspected: // see judgeSuspicions
		default:
			outcomes[e.ID] = e
		}
	}
	there := map[string]int{}
	for _, e := range ev.effects {
		there[e.id]++
	}
	for _, id := range ev.set {
		there[id]++
	}
	v.elements = len(ev.set)
	v.judgeEffects(ev, intents)
	v.judgeOutcomes(intents, outcomes, there)
	v.judgeQueue(ev)
	v.judgeSuspicions(ev, outcomes)
	for _, list := range [][]string{v.stale, v.lost, v.doubled, v.answers, v.unasked, v.barred} {
		slices.Sort(list)
	}
	return v
}

// judgeEffects checks the effects that etcd has: each was intended, was put once,
// and was its owner's when it was accepted.
func (v *verdict) judgeEffects(ev *evidence, intents map[string]entry) {
	v.effects = len(ev.effects)
	for _, e := range ev.effects {
		switch intent, ok := intents[e.id]; {
		case !ok:
			v.unasked = append(v.unasked, fmt.Sprintf("%s on %s: in no journal", e.id, e.key))
		case intent.Key != e.key || intent.Fence != e.fence:
			v.unasked = append(v.unasked, fmt.Sprintf("%s on %s@%d: intended for %s@%d", e.id, e.key, e.fence, intent.Key, intent.Fence))
		}
		if e.mod != e.create {
			v.doubled = append(v.doubled, fmt.Sprintf("%s on %s: at revisions %d and %d", e.id, e.key, e.create, e.mod))
		}
	}
	var broken history.Violations
	if errors.As(v.byRevision(ev).Check(history.Checks{}), &broken) {
		for _, violation := range broken {
			v.stale = append(v.stale, violation.Error())
		}
	}
}

// A step is one thing that etcd carried out.
type step struct {
	rev    int64
	rank   int // at one revision effects come first, then the end of their term, then the next term
	record func(*history.History)
}

// steps returns how the term began and ended, in the history of a key.
func (t *term) steps(key string) []step {
	token := fencing.Token{Key: key, Fence: t.fence}
	who := cmp.Or(t.owner, t.kind, "a record")
	all := []step{{t.fence, 2, func(h *history.History) { h.Acquire(who, key).Granted(t.fence) }}}
	if t.end > 0 {
		all = append(all, step{t.end, 1, func(h *history.History) { h.Release(who, token).Done() }})
	}
	return all
}

// byRevision returns what etcd carried out, in the order of its revisions: terms and
// effects. Effects of terms that the observer cannot have seen are left out.
func (v *verdict) byRevision(ev *evidence) *history.History {
	var steps []step
	for key, terms := range ev.terms {
		for _, t := range terms {
			steps = append(steps, t.steps(key)...)
		}
	}
	for _, e := range ev.effects {
		if v.unseen(ev, e) {
			v.unwitnessed++
			continue
		}
		token := fencing.Token{Key: e.key, Fence: e.fence}
		steps = append(steps, step{e.create, 0, func(h *history.History) {
			h.Logf("effect %s at revision %d", e.id, e.create)
			h.Effect(e.id, token).Done()
		}})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(a.rank, b.rank)) })
	h := history.New()
	for _, s := range steps {
		s.record(h)
	}
	return h
}

// unseen reports whether the term of an effect began in a gap of the observer, and
// was over before its end.
func (v *verdict) unseen(ev *evidence, e effect) bool {
	return ev.term(e.key, e.fence) == nil && ev.inGap(e.fence)
}

// judgeOutcomes looks at what workers were told.
func (v *verdict) judgeOutcomes(intents, outcomes map[string]entry, there map[string]int) {
	for id, intent := range intents {
		name := fmt.Sprintf("%s on %s@%d (%s)", id, intent.Key, intent.Fence, intent.Kind)
		n := there[id]
		outcome, ok := outcomes[id]
		write := history.Write{
			Name: name, Token: fencing.Token{Key: intent.Key, Fence: intent.Fence}, Outcome: history.OutcomeRefused, Found: n,
		}
		switch {
		case !ok || outcome.Op == opUnknown:
			write.Outcome = history.OutcomeUnknown
			if ok {
				v.unknown++
			} else {
				v.cut++
			}
			if n > 0 {
				v.applied++
			} else {
				v.notApplied++
			}
		case outcome.Op == opOK:
			write.Outcome = history.OutcomeDone
			v.acknowledged++
		case outcome.Op == opFailed:
			v.failed++
		default:
			v.refused++
			if intent.Kind == kindHeld || intent.Kind == kindLate {
				v.refusedRaw++
			}
		}
		if violation := write.Check(); violation != nil {
			v.answers = append(v.answers, violation.Error())
		}
	}
}
