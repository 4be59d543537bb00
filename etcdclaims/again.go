package etcdclaims

import "slices"

// Again begins work even if its record is in one of the states. The states are
// StateDone, StateDead, and StateFailed, whose NotBefore is then ignored. No
// states means all three.
//
// Work.Attempt continues from the earlier attempts. Config.MaxAttempts counts
// from here if the work was done or dead. Work.Previous returns the earlier
// record with its result. The new attempt replaces that record: if the attempt fails
// or is given back, the work is no longer done.
func Again(states ...State) WorkOption {
	if len(states) == 0 {
		states = []State{StateDone, StateDead, StateFailed}
	}
	return workOption{setter: func(o *acquireOptions) { o.again = append(o.again, states...) }}
}

func (o *acquireOptions) beginsAgain(s State) bool { return slices.Contains(o.again, s) }
