package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdclaims/claims/internal/history"
)

// What must not be.
const (
	stale    = "stale effects accepted"      // another owned the key, or nobody
	lost     = "items lost"                  // never completed
	answers  = "not as answered, or doubled" // acknowledged and lost, refused and carried out, or carried out twice
	unasked  = "carried out though never intended"
	barred   = "rules of suspicion broken"
	overtime = "bounds broken" // pick-ups that took too long, and keys that stayed stuck
	ended    = "workers that ended by themselves, or would not"
)

var violations = []string{stale, lost, answers, unasked, barred, overtime, ended}

// odd is only reported.
const odd = "errors not accounted for"

// countSuspected counts terms that ended by a suspicion.
const countSuspected = "terms taken from suspected holders"

// Evidence is all that the verdict is found from.
type evidence struct {
	journals []entry
	effects  []effect
	set      []string // its final elements
	terms    map[string][]*term
}

// An effect is one that etcd has.
type effect struct {
	entry         // the intent
	rev     int64 // at which it was carried out first
	version int64 // how often it was
}

// gather reads everything, once the workers have ended and all is quiet.
func gather(ctx context.Context, dir string, m *members, h *ownership) (*evidence, error) {
	ev := &evidence{terms: h.terms}
	var err error
	if ev.journals, err = readJournals(dir); err != nil {
		return nil, err
	}
	for _, prefix := range []string{effectPrefix, itemPrefix} {
		var unreadable error
		err := m.all(ctx, prefix, func(kv *mvccpb.KeyValue) {
			e := effect{rev: kv.CreateRevision, version: kv.Version}
			if err := json.Unmarshal(kv.Value, &e.entry); err != nil {
				unreadable = fmt.Errorf("effect %s cannot be read: %q", kv.Key, kv.Value)
			}
			ev.effects = append(ev.effects, e)
		})
		if err := cmp.Or(err, unreadable); err != nil {
			return nil, err
		}
	}
	err = m.all(ctx, fencedSet, func(kv *mvccpb.KeyValue) { ev.set = strings.Fields(string(kv.Value)) })
	return ev, err
}

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
	intents, outcomes, items := map[string]entry{}, map[string]entry{}, map[string]bool{}
	for _, e := range ev.journals {
		switch e.Op {
		case opIntent:
			intents[e.ID] = e
		case opOdd:
			v.find(odd, "%s", e.Note)
		case opEnqueued:
			items[e.Key] = true
			v.count("items enqueued", 1)
		case opClaimed:
			v.count("items claimed", 1)
		case opSuspected:
			v.count(countSuspected+cmp.Or(e.Note, ", rightly"), e.Want)
		default:
			outcomes[e.ID] = e
		}
	}
	carriedOut := map[string]int{}
	for _, id := range ev.set {
		carriedOut[id]++
	}
	for _, e := range ev.effects {
		carriedOut[e.ID] += int(e.version)
		if intent := intents[e.ID]; intent != e.entry {
			v.find(unasked, "%+v: intended was %+v", e.entry, intent)
		}
		if e.Kind == kindItem {
			delete(items, e.Key)
			continue
		}
		// The terms of a key follow each other: each ends at the latest where the next begins.
		if t := ev.term(e.Key, e.Fence); t == nil || t.end > 0 && e.rev > t.end {
			v.find(stale, "%s on %s@%d at revision %d, under %+v", e.ID, e.Key, e.Fence, e.rev, t)
		}
	}
	for item := range items {
		v.find(lost, "item %s of the queue: never completed", item)
	}
	v.judgeOutcomes(ev, intents, outcomes, carriedOut)
	v.judgeTerms(ev)
	for _, list := range v.findings {
		slices.Sort(list)
	}
	return v
}

// term returns the term with a fence, or nil.
func (ev *evidence) term(key string, fence int64) *term {
	i := slices.IndexFunc(ev.terms[key], func(t *term) bool { return t.fence == fence })
	if i < 0 {
		return nil
	}
	return ev.terms[key][i]
}

// judgeOutcomes looks at what workers were told.
func (v *verdict) judgeOutcomes(ev *evidence, intents, outcomes map[string]entry, carriedOut map[string]int) {
	for id, intent := range intents {
		told := cmp.Or(outcomes[id].Op, "killed before the reply")
		write := history.Write{
			Name: id + " " + intent.Kind, Token: intent.token(), Outcome: history.OutcomeUnknown, Found: carriedOut[id],
		}
		switch told {
		case opDone:
			write.Outcome = history.OutcomeDone
		case opRefused, opFailed:
			write.Outcome = history.OutcomeRefused
		}
		if violation := write.Check(); violation != nil {
			v.find(answers, "%v", violation)
		}
		v.count("effects "+intent.Kind+": "+told, 1)
		if write.Outcome == history.OutcomeUnknown && write.Found > 0 {
			v.count("effects unknown that turned out applied", 1)
		}
		byGuard := intent.Kind == kindHeld || intent.Kind == kindLate
		if t := ev.term(intent.Key, intent.Fence); t != nil && t.suspected && told == opRefused && byGuard {
			v.count("effects of suspected holders refused by etcd alone", 1)
		}
	}
}

// judgeTerms checks that the old and the new claim of each suspicion have the option.
func (v *verdict) judgeTerms(ev *evidence) {
	for key, terms := range ev.terms {
		for i, t := range terms {
			v.count("terms", 1)
			next := &term{fence: -1} // none
			if i+1 < len(terms) {
				next = terms[i+1]
			}
			broken := ""
			switch {
			case t.lapsed:
				v.count("terms that ended with a lease", 1)
			case !t.suspected && next.fence == t.end && t.Kind == "" && next.Kind == "":
				v.count("terms handed over", 1)
			case !t.suspected:
			case t.Kind != "":
				broken = "it had no owner, but a record: " + t.Kind
			case !t.Suspectable:
				broken = "its claim does not have the option"
			case next.fence != t.end:
				broken = "no next owner took it"
			case !next.Suspectable:
				broken = "the next claim does not have the option"
			}
			if t.suspected {
				v.count(countSuspected, 1)
			}
			if broken != "" {
				v.find(barred, "%s@%d was taken for a suspicion at revision %d: %s", key, t.fence, t.end, broken)
			}
		}
	}
}

// samples is how many findings of a sort are printed; all of them can be found
// in journals and logs.
const samples = 20

// report prints what a run has shown. This program stalled for so long in all of it.
func report(out io.Writer, v *verdict, pickups []pickup, ttl, stalled time.Duration) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any, note string) { fmt.Fprintf(table, "%s\t%v\t%s\n", name, value, note) }
	times := func(name, bound string, of func(pickup) bool) {
		var took []time.Duration
		for _, p := range pickups {
			if of(p) {
				took = append(took, p.took)
			}
		}
		if slices.Sort(took); len(took) > 0 {
			bound = fmt.Sprintf("p50 %.2f s, max %.2f s, %s", took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), bound)
		}
		row(name, len(took), bound)
	}
	fmt.Fprintln(table)
	for _, name := range slices.Sorted(maps.Keys(v.figures)) {
		row(name, v.figures[name], "")
	}
	times("pick-up, nothing else wrong", fmt.Sprintf("bound %v", plainBound(ttl)), func(p pickup) bool { return p.what == nothingElse })
	times("  from suspected holders", fmt.Sprintf("bound of p50 %v", suspicionMedian), pickup.fromSuspected)
	ofLeader := fmt.Sprintf("bound %v, or %.2f s if it was stopped", leaderBound(ttl), stoppedLeaderBound(ttl).Seconds())
	times("pick-up, leader lost meanwhile", ofLeader, func(p pickup) bool { return p.what == leaderLost })
	times("pick-up, waiters or majority disturbed", fmt.Sprintf("bound %v after that is over", leaderBound(ttl)),
		func(p pickup) bool { return p.what == disturbed })
	row("campaign stalled", stalled.Round(time.Millisecond), "added to the bounds of pick-ups meanwhile")
	row(odd, len(v.findings[odd]), "")
	fmt.Fprintln(table)
	for _, name := range violations {
		row(name, len(v.findings[name]), "must be 0")
	}
	for _, name := range slices.Sorted(maps.Keys(v.findings)) {
		list := v.findings[name]
		fmt.Fprintf(table, "\n%s:\n", name)
		for _, text := range list[:min(samples, len(list))] {
			fmt.Fprintf(table, "  %s\n", text)
		}
		if more := len(list) - samples; more > 0 {
			fmt.Fprintf(table, "  and %d more\n", more)
		}
	}
	return table.Flush()
}
