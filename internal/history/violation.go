package history

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/fencing"
)

// A Rule is one of the rules that [History.Check] and [Write.Check] apply.
type Rule string

// The rules.
const (
	// OneOwner: no two processes hold a key at the same time, by their own knowledge.
	// A process holds a key from the return of the acquisition to the call of the
	// release, to Ended, or to its death. It does not need effects: it finds
	// a double grant even if no write was made under it.
	OneOwner Rule = "one owner"
	// FencesRise: if a grant of a key returned before another was requested, its
	// fence is lower. No fence is granted twice, and all are greater than 0.
	FencesRise Rule = "fences rise"
	// Linearizable: there is a sequential order of all calls, each between its
	// record and that of its return, in which every result is right.
	Linearizable Rule = "linearizable"
	// CallsReturn: every call returned, unless its process died.
	CallsReturn Rule = "calls return"
	// AsAnswered: a write that was reported as done is found once, a write that was
	// reported as refused is not found, and no write is found twice. See [Write].
	AsAnswered Rule = "as answered"
	// Undecided: Checks.Steps were too few to find an order for Linearizable, or to
	// show that there is no order. Nothing is known about the key then.
	Undecided Rule = "undecided"
)

// A Violation is one breach of a rule.
type Violation struct {
	Rule   Rule
	Key    string  // empty if it concerns no single key
	Fences []int64 // the fences concerned
	Detail string  // what happened
	// Lines are the records that show it, with their numbers and times.
	Lines []string
}

func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "history: %s: ", v.Rule)
	if v.Key != "" {
		fmt.Fprintf(&b, "key %q: ", v.Key)
	}
	b.WriteString(v.Detail)
	for _, line := range v.Lines {
		b.WriteString("\n\t" + line)
	}
	return b.String()
}

// Violations is the result of a check that failed. It is never empty. [errors.As]
// finds the first one as a *[Violation].
type Violations []*Violation

// maxShown is how many violations an error message contains: one fault often has
// many consequences.
const maxShown = 10

func (vs Violations) Error() string {
	lines := make([]string, 0, maxShown+1)
	for _, v := range vs[:min(len(vs), maxShown)] {
		lines = append(lines, v.Error())
	}
	if more := len(vs) - maxShown; more > 0 {
		lines = append(lines, fmt.Sprintf("history: and %d more violations", more))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns all violations.
func (vs Violations) Unwrap() []error {
	errs := make([]error, len(vs))
	for i, v := range vs {
		errs[i] = v
	}
	return errs
}

// lines returns the records with these numbers, in order. Numbers without a record
// are left out.
func (p *timeline) lines(seqs ...int64) []string {
	slices.Sort(seqs)
	var lines []string
	for _, seq := range slices.Compact(seqs) {
		if 0 < seq && seq < p.never() {
			lines = append(lines, p.events[seq-1].String())
		}
	}
	return lines
}

// An Outcome is what the caller of a write learned about it.
type Outcome string

// Outcomes of writes.
const (
	OutcomeDone    Outcome = "done"
	OutcomeRefused Outcome = "refused" // not carried out, for any reason
	OutcomeUnknown Outcome = "unknown"
)

// A Write compares the results that a caller got for a write with what the store has
// when the test is over. Give each write a value of its own, so that the test can
// count how often the store has it.
type Write struct {
	Name    string        // identifies the write in a violation
	Token   fencing.Token // of the claim that it was made under
	Outcome Outcome
	Found   int // how often the write was carried out, according to the store
}

// Check returns the violation of [AsAnswered], or nil.
func (w Write) Check() *Violation {
	detail := ""
	switch {
	case w.Found > 1:
		detail = fmt.Sprintf("was carried out %d times", w.Found)
	case w.Outcome == OutcomeDone && w.Found == 0:
		detail = "was reported as done and is not in the store"
	case w.Outcome == OutcomeRefused && w.Found > 0:
		detail = "was reported as refused and is in the store"
	default:
		return nil
	}
	return &Violation{
		Rule: AsAnswered, Key: w.Token.Key, Fences: []int64{w.Token.Fence},
		Detail: fmt.Sprintf("write %s %s", w.Name, detail),
	}
}
