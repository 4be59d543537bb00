package explain

import (
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/sched"
)

// Outcome returns the reason of an outcome in the words of Scheduler.Explain, for a record that does
// not show its own. It returns an empty text for a tick that succeeded.
func Outcome(o sched.Outcome) string {
	if o == sched.OutcomeOK {
		return ""
	}
	return jobstate.Why[o]
}
