package main

import (
	"fmt"
	"slices"
	"strings"
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

	items, tookOver     int
	elements, plainLost int
	plainUnknown        int
	overlaps, lateLines int
	sections            int
	unwitnessed         int // effects whose owner could not be looked up, in gaps of the observer

	stale    []string // accepted though another owned the key, or nobody
	lost     []string // acknowledged and not there, or items that were never done
	doubled  []string // carried out twice
	denied   []string // carried out though the worker was told they were not
	unasked  []string // carried out though nobody intended them
	overtime []string // pick-ups that took too long, and keys that stayed stuck
	ends     []string // workers that ended by themselves, or did not end when told to
}

// held reports whether everything did.
func (v *verdict) held() bool {
	return len(v.stale)+len(v.lost)+len(v.doubled)+len(v.denied)+len(v.unasked)+len(v.overtime)+len(v.ends) == 0
}

// judge compares what workers intended and were told with what etcd has.
func judge(ev *evidence) *verdict {
	v := &verdict{}
	intents, outcomes := map[string]entry{}, map[string]entry{}
	for _, e := range ev.journals {
		switch e.Op {
		case opIntent:
			intents[e.ID] = e
		case opTookOver:
			v.tookOver++
		case opOdd:
			v.odd = append(v.odd, e.Note)
		default:
			outcomes[e.ID] = e
		}
	}
	there := map[string]int{}
	for _, e := range ev.effects {
		there[e.id]++
	}
	for _, kind := range []string{kindSet, kindPlain} {
		for _, id := range ev.sets[kind] {
			there[id]++
		}
	}
	v.elements = len(ev.sets[kindSet])
	v.judgeEffects(ev, intents)
	v.judgeOutcomes(intents, outcomes, there)
	v.judgeItems(ev, outcomes)
	for _, lines := range ev.sections {
		for _, l := range lines {
			if l.word == "begin" {
				v.sections++
			}
		}
		overlaps, late := countOverlaps(lines, ev.deaths)
		v.overlaps += overlaps
		v.lateLines += late
	}
	for _, list := range [][]string{v.stale, v.lost, v.doubled, v.denied, v.unasked} {
		slices.Sort(list)
	}
	return v
}

// judgeEffects looks at what etcd has, in the order in which it was accepted.
func (v *verdict) judgeEffects(ev *evidence, intents map[string]entry) {
	byKey := map[string][]effect{}
	for _, e := range ev.effects {
		byKey[e.key] = append(byKey[e.key], e)
	}
	v.effects = len(ev.effects)
	for key, effects := range byKey {
		slices.SortFunc(effects, func(a, b effect) int { return int(a.create - b.create) })
		newest := int64(0)
		for _, e := range effects {
			switch intent, ok := intents[e.id]; {
			case !ok:
				v.unasked = append(v.unasked, fmt.Sprintf("%s on %s: in no journal", e.id, key))
			case intent.Key != e.key || intent.Fence != e.fence:
				v.unasked = append(v.unasked, fmt.Sprintf("%s on %s@%d: intended for %s@%d", e.id, key, e.fence, intent.Key, intent.Fence))
			}
			if e.mod != e.create {
				v.doubled = append(v.doubled, fmt.Sprintf("%s on %s: at revisions %d and %d", e.id, key, e.create, e.mod))
			}
			if e.fence < newest {
				v.stale = append(v.stale, fmt.Sprintf("%s on %s: fence %d at revision %d, after one of fence %d", e.id, key, e.fence, e.create, newest))
			} else if why := v.witness(ev, e); why != "" {
				v.stale = append(v.stale, fmt.Sprintf("%s on %s: fence %d at revision %d, %s", e.id, key, e.fence, e.create, why))
			}
			newest = max(newest, e.fence)
		}
	}
}

// witness asks the observer's history whether the fence of an effect was that of
// the owner when it was accepted. It returns what speaks against it.
func (v *verdict) witness(ev *evidence, e effect) string {
	terms := ev.terms[e.key]
	i, ok := slices.BinarySearchFunc(terms, e.fence, func(t *term, fence int64) int { return int(t.fence - fence) })
	if !ok {
		for _, gap := range ev.gaps {
			if gap[0] < e.fence && e.fence <= gap[1] {
				v.unwitnessed++
				return ""
			}
		}
		return "which nobody ever had"
	}
	// A term that ends with its last effect, in one transaction, ends at the
	// revision of that.
	if t := terms[i]; e.create < t.fence || t.end > 0 && e.create > t.end {
		return fmt.Sprintf("which had ended at revision %d", t.end)
	}
	return ""
}

// judgeOutcomes looks at what workers were told.
func (v *verdict) judgeOutcomes(intents, outcomes map[string]entry, there map[string]int) {
	for id, intent := range intents {
		name := fmt.Sprintf("%s on %s@%d (%s)", id, intent.Key, intent.Fence, intent.Kind)
		n := there[id]
		if n > 1 {
			v.doubled = append(v.doubled, fmt.Sprintf("%s: %d times", name, n))
		}
		outcome, ok := outcomes[id]
		if intent.Kind == kindPlain {
			// What is lost here is lost for want of a fence.
			switch {
			case ok && outcome.Op == opOK && n == 0:
				v.plainLost++
			case !ok, outcome.Op == opUnknown:
				v.plainUnknown++
			}
			continue
		}
		switch {
		case !ok || outcome.Op == opUnknown:
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
			v.acknowledged++
			if n == 0 {
				v.lost = append(v.lost, name)
			}
		default:
			if outcome.Op == opFailed {
				v.failed++
			} else {
				v.refused++
				if intent.Kind == kindHeld || intent.Kind == kindLate {
					v.refusedRaw++
				}
			}
			if n > 0 {
				v.denied = append(v.denied, fmt.Sprintf("%s: %s, %s", name, outcome.Op, outcome.Note))
			}
		}
	}
}

// judgeItems looks for items that were not done exactly once.
func (v *verdict) judgeItems(ev *evidence, outcomes map[string]entry) {
	v.items = len(ev.submitted)
	completed := map[string]int{}
	for _, e := range ev.effects {
		if e.kind == kindComplete {
			completed[strings.TrimPrefix(e.key, itemStart)]++
		}
	}
	acknowledged := map[string]int{}
	for _, e := range outcomes {
		if e.Kind == kindComplete && e.Op == opOK {
			acknowledged[strings.TrimPrefix(e.Key, itemStart)]++
		}
	}
	for _, item := range ev.submitted {
		if ev.done[item] == 0 {
			v.lost = append(v.lost, fmt.Sprintf("item %s: never done", item))
		}
	}
	for item, version := range ev.done {
		if n := max(version, int64(completed[item]), int64(acknowledged[item])); n > 1 {
			v.doubled = append(v.doubled, fmt.Sprintf("item %s: done %d times", item, n))
		}
	}
}
