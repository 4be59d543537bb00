package claimtest

import (
	"fmt"
	"slices"
	"strings"
)

// A Rule is one of the things that [History.Check] looks at.
type Rule string

// The rules.
const (
	// OneOwner: no two processes believed at a time that they own a key.
	// Belief lasts from the return of the acquisition to the call of the
	// release, to Ended, or to the process's death. It is not effects that
	// this looks at: a double grant that no effect ever showed is found.
	OneOwner Rule = "one owner"
	// FencesRise: of two grants of a key, if one returned before the other was
	// called its fence is lower; none is granted twice; none is 0.
	FencesRise Rule = "fences rise"
	// Linearizable: there is an order of all calls, each between its record
	// and that of its return, in which each was answered as it should be.
	Linearizable Rule = "linearizable"
	// CallsReturn: each call returned, unless its process died.
	CallsReturn Rule = "calls return"
	// Undecided: Checks.Steps were not enough to find such an order, or that
	// there is none. Nothing is known of the key then.
	Undecided Rule = "undecided"
)

// A Violation is one thing that should not have happened.
type Violation struct {
	Rule   Rule
	Key    string  // "" if it is of none
	Fences []int64 // that it is about
	Detail string  // what happened
	// Lines are the records that show it, with their numbers and times.
	Lines []string
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "claimtest: %s: ", v.Rule)
	if v.Key != "" {
		fmt.Fprintf(&b, "key %q: ", v.Key)
	}
	b.WriteString(v.Detail)
	for _, line := range v.Lines {
		b.WriteString("\n\t" + line)
	}
	return b.String()
}

// Violations are what a check found, never none. [errors.As] finds the first as
// a *[Violation].
type Violations []*Violation

// maxShown is how many violations are spelled out: one fault often has many
// consequences.
const maxShown = 10

func (vs Violations) Error() string {
	lines := make([]string, 0, maxShown+1)
	for _, v := range vs[:min(len(vs), maxShown)] {
		lines = append(lines, v.Error())
	}
	if more := len(vs) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("claimtest: and %d more violations", more))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each of them.
func (vs Violations) Unwrap() []error {
	errs := make([]error, len(vs))
	for i, v := range vs {
		errs[i] = v
	}
	return errs
}

// lines returns the records with the numbers, in their order. Numbers that are
// of no record are left out.
func (p *past) lines(seqs ...int64) []string {
	slices.Sort(seqs)
	var lines []string
	for _, seq := range slices.Compact(seqs) {
		if 0 < seq && seq < p.never() {
			lines = append(lines, p.events[seq-1].String())
		}
	}
	return lines
}
