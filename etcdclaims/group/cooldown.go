package group

import "time"

const (
	gatherTime = 100 * time.Millisecond // without a change of the list, while a group begins
	mostGather = time.Second
)

// gathering returns how long a member still waits before it claims its first partitions, because
// the group begins and others may be about to join. It has been a member for age, and the list
// has not changed for calm. begun reports whether a partition has an owner or is reserved.
func gathering(begun bool, age, calm time.Duration) time.Duration {
	if begun {
		return 0
	}
	return max(0, min(gatherTime-calm, mostGather-age))
}

// tenure is what a view has seen of the owners of a partition.
type tenure struct {
	instance string    // the last owner; empty if there was none, or something else has the key
	since    time.Time // when the first owner was seen
	passed   bool      // there was another owner since
}

// cooling returns how long a move still waits for the cool-down of its target, which has been a
// member for age. The first owner of a partition, which got it less than a cool-down ago, does not
// wait for that: it was only early. It waits until all members have learnt of the target, so that a
// partition makes this exception once.
func cooling(cooldown, age, calm time.Duration, t tenure, now time.Time) time.Duration {
	wait := max(0, cooldown-age)
	if t.passed || now.Sub(t.since) >= cooldown {
		return wait
	}
	return min(wait, max(0, agreeTime-calm))
}
