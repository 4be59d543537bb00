package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/history"
)

// What must not be.
const (
	stale    = "stale effects accepted" // another owned the key, or nobody
	lost     = "items lost"             // never completed
	doubled  = "doubled"                // put twice
	answers  = "not as answered"        // acknowledged and lost, refused and carried out, or carried out twice
	unasked  = "carried out though never intended"
	barred   = "rules of suspicion broken"
	overtime = "bounds broken" // pick-ups that took too long, and keys that stayed stuck
	ended    = "workers that ended by themselves, or would not"
)

var violations = []string{stale, lost, doubled, answers, unasked, barred, overtime, ended}

// What is only reported.
const (
	odd         = "errors not accounted for"
	unexplained = "suspected without a fault that explains it"
)

// A verdict is what the evidence shows.
type verdict struct {
	figures  map[string]int
	findings map[string][]string
}

func (v *verdict) count(what string, n int) { v.figures[what] += n }

func (v *verdict) find(what, format string, args ...any) {
	v.findings[what] = append(v.findings[what], fmt.Sprintf(format, args...))
}

// held reports whether everything did.
func (v *verdict) held() bool {
	return !slices.ContainsFunc(violations, func(what string) bool { return len(v.findings[what]) > 0 })
}

// judge compares what workers intended and were told with what etcd has.
func judge(ev *evidence) *verdict {
	v := &verdict{figures: map[string]int{}, findings: map[string][]string{}}
	intents, outcomes := map[string]entry{}, map[string]entry{}
	for _, e := range ev.journals {
		switch e.Op {
		case opIntent:
			intents[e.ID] = e
		case opOdd:
			v.find(odd, "%s", e.Note)
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
	v.count("elements in the fenced set", len(ev.set))
	v.judgeEffects(ev, intents)
	v.judgeOutcomes(intents, outcomes, there)
	v.judgeQueue(ev)
	v.judgeSuspicions(ev, outcomes)
	for _, list := range v.findings {
		slices.Sort(list)
	}
	return v
}

// judgeEffects checks the effects that etcd has: each was intended, was put once,
// and was its owner's when it was accepted.
func (v *verdict) judgeEffects(ev *evidence, intents map[string]entry) {
	v.count("effects in etcd", len(ev.effects))
	for _, e := range ev.effects {
		switch intent, ok := intents[e.id]; {
		case !ok:
			v.find(unasked, "%s on %s: in no journal", e.id, e.key)
		case intent.Key != e.key || intent.Fence != e.fence:
			v.find(unasked, "%s on %s@%d: intended for %s@%d", e.id, e.key, e.fence, intent.Key, intent.Fence)
		}
		if e.mod != e.create {
			v.find(doubled, "%s on %s: at revisions %d and %d", e.id, e.key, e.create, e.mod)
		}
	}
	var broken history.Violations
	if errors.As(v.byRevision(ev).Check(history.Checks{}), &broken) {
		for _, violation := range broken {
			v.find(stale, "%v", violation)
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
			v.count("effects whose owner the observer cannot have seen", 1)
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
				v.count("effects unknown", 1)
			} else {
				v.count("effects unknown, of workers killed before the reply", 1)
			}
			if n > 0 {
				v.count("effects unknown that turned out applied", 1)
			}
		case outcome.Op == opOK:
			write.Outcome = history.OutcomeDone
			v.count("effects and elements acknowledged", 1)
		case outcome.Op == opFailed:
			v.count("effects that failed otherwise", 1)
		default:
			v.count("effects refused as stale", 1)
			if intent.Kind == kindHeld || intent.Kind == kindLate {
				v.count("effects refused as stale by etcd alone", 1)
			}
		}
		if violation := write.Check(); violation != nil {
			v.find(answers, "%v", violation)
		}
	}
}
