package explain

import (
	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/sched"
)

// Outcome returns why a tick did not succeed, in the words of Scheduler.Explain. It returns an empty
// text if the record has a reason of its own.
func Outcome(e sched.Entry) string {
	if e.Error != "" || e.Outcome == sched.OutcomeOK {
		return ""
	}
	return jobstate.Why[e.Outcome]
}
