package history

import (
	"fmt"

	"github.com/etcdclaims/claims/fencing"
)

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
