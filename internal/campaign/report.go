package main

import (
	"fmt"
	"io"
	"maps"
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
	v       *verdict
	pickups []pickup
	ttl     time.Duration
	stalled time.Duration // this program, in the whole run
}

func (r *report) print(out io.Writer) error {
	v := r.v
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any, note string, args ...any) {
		fmt.Fprintf(table, "%s\t%v\t%s\n", name, value, fmt.Sprintf(note, args...))
	}
	fmt.Fprintln(table)
	for _, name := range slices.Sorted(maps.Keys(v.figures)) {
		row(name, v.figures[name], "")
	}
	r.pickupRows(row)
	row(odd, len(v.findings[odd]), "")
	fmt.Fprintln(table)
	for _, name := range violations {
		row(name, len(v.findings[name]), "must be 0")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, name := range slices.Concat(violations, []string{odd, unexplained}) {
		if err := printList(out, name, v.findings[name]); err != nil {
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

// printList prints findings of one sort, if there are any.
func printList(out io.Writer, name string, list []string) error {
	if len(list) == 0 {
		return nil
	}
	var s strings.Builder
	fmt.Fprintf(&s, "\n%s:\n", name)
	for i, text := range list {
		if i == samples {
			fmt.Fprintf(&s, "  and %d more\n", len(list)-samples)
			break
		}
		fmt.Fprintf(&s, "  %s\n", text)
	}
	_, err := io.WriteString(out, s.String())
	return err
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
