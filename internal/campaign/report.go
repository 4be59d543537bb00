package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// samples is how many findings of a sort are printed; all of them can be found
// in journals and logs.
const samples = 20

// A report is what is printed at the end.
type report struct {
	v                *verdict
	terms, takeOvers int
	faults           []fault
	pickups          []pickup
	ttl              time.Duration
	stalled          time.Duration // this program, in the whole run
	unexplained      []string      // suspicions
}

func (r *report) print(out io.Writer) error {
	v := r.v
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any, note string, args ...any) {
		fmt.Fprintf(table, "%s\t%v\t%s\n", name, value, fmt.Sprintf(note, args...))
	}
	fmt.Fprintln(table)
	row("terms", r.terms, "on %d take-overs after a lease had lapsed", r.takeOvers)
	s := v.suspicions
	row("  of suspectable keys", s.keys.terms, "%d handed over, %d ended with a lease", s.keys.handedOver, s.keys.lapsed)
	row("  taken from suspected holders", s.taken, "%d rightly, %d wrongly, as far as their takers know; %d without a fault that explains it", s.right, s.wrong, len(r.unexplained))
	row("effects in etcd", v.effects, "%d effects and elements acknowledged to workers", v.acknowledged)
	row("items enqueued", v.queued, "%d claims acknowledged, %d of them of an item that was claimed before", v.claimed, v.claimedAgain)
	row("  completed", v.completed, "as acknowledged; %d reported as unknown, %d by workers killed before they noted it", v.maybeDone, v.untold)
	made := 0
	for _, f := range r.faults {
		if !f.failed {
			made++
		}
	}
	row("faults", made, "%d more could not be made", len(r.faults)-made)
	for _, kind := range faultKinds {
		if n := r.count(kind); n > 0 {
			row("  "+string(kind), n, "")
		}
	}
	r.pickupRows(row)
	row("stale effects refused", v.refused, "%d of them by etcd alone; %d failed otherwise", v.refusedRaw, v.failed)
	row("  of suspected holders", s.refused, "by etcd alone")
	row("unknown outcomes", v.unknown+v.cut, "%d reported, %d of workers killed before the reply", v.unknown, v.cut)
	row("  turned out applied", v.applied, "")
	row("  turned out not applied", v.notApplied, "")
	row("elements in the fenced set", v.elements, "")
	if v.unwitnessed > 0 {
		row("owners not looked up", v.unwitnessed, "in gaps of the observer; their order was checked")
	}
	row("errors not accounted for", len(v.odd), "")
	fmt.Fprintln(table)
	for _, finding := range r.findings() {
		note := ""
		if len(finding.list) > 0 {
			note = "must be 0"
		}
		row(finding.name, len(finding.list), "%s", note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, finding := range append(r.findings(), finding{"errors not accounted for", v.odd}, finding{"suspected without a fault that explains it", r.unexplained}) {
		if err := finding.print(out); err != nil {
			return err
		}
	}
	return nil
}

// pickupRows prints how fast keys were picked up.
func (r *report) pickupRows(row func(string, any, string, ...any)) {
	r.pickupRow(row, "pick-up, nothing else wrong", nothingElse, "bound "+plainBound(r.ttl).String())
	r.pickupRow(row, "pick-up, leader lost meanwhile", leaderLost, fmt.Sprintf("bound %v, or %.2f s if it was stopped", leaderBound(r.ttl), stoppedLeaderBound(r.ttl).Seconds()))
	r.pickupRow(row, "pick-up, waiters or majority disturbed", disturbed, "bound "+leaderBound(r.ttl).String()+" after that is over")
	row("  campaign stalled", r.stalled.Round(time.Millisecond), "added to the bounds of pick-ups meanwhile")
	durationsRow(row, "  from suspected holders, nothing else wrong", suspectedPickups(r.pickups), "bound of p50 "+suspicionMedian.String())
}

// A finding is what must be nothing.
type finding struct {
	name string
	list []string
}

func (r *report) findings() []finding {
	v := r.v
	return []finding{
		{"stale effects accepted", v.stale},
		{"items lost", v.lost},
		{"doubled", v.doubled},
		{"not as answered", v.answers},
		{"carried out though never intended", v.unasked},
		{"rules of suspicion broken", v.barred},
		{"bounds broken", v.overtime},
		{"workers that ended by themselves, or would not", v.ends},
	}
}

func (f finding) print(out io.Writer) error {
	if len(f.list) == 0 {
		return nil
	}
	var s strings.Builder
	fmt.Fprintf(&s, "\n%s:\n", f.name)
	for i, text := range f.list {
		if i == samples {
			fmt.Fprintf(&s, "  and %d more\n", len(f.list)-samples)
			break
		}
		fmt.Fprintf(&s, "  %s\n", text)
	}
	_, err := io.WriteString(out, s.String())
	return err
}

func (r *report) count(kind faultKind) (n int) {
	for _, f := range r.faults {
		if f.kind == kind && !f.failed {
			n++
		}
	}
	return n
}

func (r *report) pickupRow(row func(string, any, string, ...any), name string, what circumstances, bound string) {
	var took []time.Duration
	for _, p := range r.pickups {
		if p.what == what {
			took = append(took, p.took)
		}
	}
	durationsRow(row, name, took, bound)
}

func durationsRow(row func(string, any, string, ...any), name string, took []time.Duration, bound string) {
	if len(took) == 0 {
		row(name, 0, "%s", bound)
		return
	}
	slices.Sort(took)
	row(name, len(took), "p50 %.2f s, max %.2f s, %s", took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), bound)
}
