package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

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
