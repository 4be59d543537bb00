package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// suspectKeys is how many keys have claims whose holders can be suspected. Half of the claims
// on the key of the fenced set have the option, too.
const suspectKeys = 3

const suspectStart = "suspect-"

func suspectName(i int) string { return fmt.Sprint(suspectStart, i) }

// canBeSuspected reports whether a key is one whose holders can be suspected.
func canBeSuspected(key string) bool { return strings.HasPrefix(key, suspectStart) }

// takeSuspectable claims a key whose holders can be suspected. One claim in ten does not have
// the option.
func (w *worker) takeSuspectable(ctx context.Context, r *rand.Rand) error {
	var opts []etcdclaims.AcquireOption
	if r.IntN(10) > 0 {
		opts = append(opts, etcdclaims.Suspectable())
	}
	return w.turn(ctx, r, suspectName(r.IntN(suspectKeys)), opts...)
}

// judged writes down whether a suspicion of this worker was right.
func (w *worker) judged(_ string, claims int, wrong bool) {
	e := entry{Op: opSuspected, Want: claims}
	if wrong {
		e.Note = wronglySuspected
	}
	w.journal.write(e)
}

// countSuspected counts terms of all keys that ended by a suspicion.
const countSuspected = "terms taken from suspected holders"

// judgeSuspicions checks that the old and the new claim of each suspicion have the option.
func (v *verdict) judgeSuspicions(ev *evidence, outcomes map[string]entry) {
	for key, terms := range ev.terms {
		for i, t := range terms {
			if canBeSuspected(key) && t.kind == "" {
				v.count("terms of suspectable keys", 1)
				if i > 0 && terms[i-1].end == t.fence && terms[i-1].kind == "" && !terms[i-1].suspected {
					v.count("terms of suspectable keys handed over", 1)
				}
				if t.lapsed {
					v.count("terms of suspectable keys that ended with a lease", 1)
				}
			}
			if !t.suspected {
				continue
			}
			v.count(countSuspected, 1)
			broken := ""
			switch {
			case t.kind != "":
				broken = "it had no owner, but a record: " + t.kind
			case !t.suspectable:
				broken = "its claim does not have the option"
			case i+1 == len(terms) || terms[i+1].fence != t.end:
				broken = "no next owner took it"
			case !terms[i+1].suspectable:
				broken = "the next claim does not have the option"
			}
			if broken != "" {
				v.find(barred, "%s@%d was taken for a suspicion at revision %d: %s", key, t.fence, t.end, broken)
			}
		}
	}
	for _, e := range outcomes {
		if t := ev.term(e.Key, e.Fence); t != nil && t.suspected && e.Op == opRefused && (e.Kind == kindHeld || e.Kind == kindLate) {
			v.count("effects of suspected holders refused by etcd alone", 1)
		}
	}
	for _, e := range ev.journals {
		switch {
		case e.Op == opSuspected && e.Note == wronglySuspected:
			v.count(countSuspected+" wrongly", e.Want)
		case e.Op == opSuspected:
			v.count(countSuspected+" rightly", e.Want)
		}
	}
}

// suspicionMedian bounds the median of pick-ups from suspected holders. Each takes 450 ms, or 1.8 s
// if the holder was dead before it was ever asked, and what a busy machine adds.
const suspicionMedian = 3 * time.Second

// suspectedPickups returns how long pick-ups from suspected holders took, in order, if
// nothing else was wrong.
func suspectedPickups(pickups []pickup) (took []time.Duration) {
	for _, p := range pickups {
		if p.suspected && p.what == nothingElse {
			took = append(took, p.took-p.stalled)
		}
	}
	slices.Sort(took)
	return took
}

// slowSuspicion returns what is wrong if suspicions take long.
func slowSuspicion(pickups []pickup) []string {
	const enough = 10 // fewer have no median to speak of
	took := suspectedPickups(pickups)
	if len(took) < enough || took[len(took)/2] <= suspicionMedian {
		return nil
	}
	return []string{fmt.Sprintf("half of %d pick-ups from suspected holders took longer than %v", len(took), suspicionMedian)}
}

// unexplained returns the terms that ended by a suspicion although no fault concerned their
// worker, a member or this program. They are not findings: a busy machine causes some.
func (h *ownership) unexplained(faults []fault) (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, terms := range h.terms {
		for _, t := range terms {
			if !t.suspected {
				continue
			}
			const before = 4 * time.Second // and settling: a client may have to connect again
			from := t.ended.Add(-before)
			concerns := func(f fault) bool {
				if f.kind == killWorker && f.worker == t.owner {
					return !f.from.After(t.ended)
				}
				return f.overlaps(from, t.ended) && (f.kind.ofMembers() || f.worker != "" && slotOf(f.worker) == slotOf(t.owner))
			}
			if !slices.ContainsFunc(faults, concerns) && h.stalls.within(from, t.ended) < stallLeast {
				all = append(all, fmt.Sprintf("%s@%d of %s", key, t.fence, t.owner))
			}
		}
	}
	slices.Sort(all)
	return all
}
