package txn

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A group is calls of a round trip that one operation of its transaction carries out.
type group struct {
	kind  groupKind
	calls []*call
}

type groupKind int8

const (
	// nested calls succeed or fail each by itself.
	nested groupKind = iota
	// listed is one call, which is its operation.
	listed
	// joint calls are one transaction: its conditions are those of all. If one does not hold,
	// none of the calls is carried out.
	joint
)

// message returns the transaction that the group's operation is.
func (g group) message() *pb.TxnRequest {
	switch {
	case len(g.calls) == 1:
		return g.calls[0].In
	case g.kind == joint:
		return g.union()
	}
	in := &pb.TxnRequest{Success: make([]*pb.RequestOp, len(g.calls))}
	for i, c := range g.calls {
		in.Success[i] = Nest(c.In)
	}
	return in
}

// union returns one transaction with the conditions and operations of all calls.
func (g group) union() *pb.TxnRequest {
	conditions, ops := 0, 0
	for _, c := range g.calls {
		conditions, ops = conditions+len(c.In.Compare), ops+len(c.In.Success)
	}
	in := &pb.TxnRequest{Compare: make([]*pb.Compare, 0, conditions), Success: make([]*pb.RequestOp, 0, ops)}
	for _, c := range g.calls {
		in.Compare, in.Success = append(in.Compare, c.In.Compare...), append(in.Success, c.In.Success...)
	}
	return in
}

// settle gives each call its part of the group's reply, or reports that all were refused together.
func (g group) settle(op *pb.ResponseOp, header *pb.ResponseHeader) (refused bool) {
	own := op.GetResponseTxn()
	switch {
	case len(g.calls) == 1:
		g.calls[0].answer(op, header, g.kind == listed)
	case g.kind != joint:
		for i, c := range g.calls {
			c.answer(own.Responses[i], header, false)
		}
	case !own.Succeeded:
		return true
	default:
		at := 0
		for _, c := range g.calls {
			n := len(c.In.Success)
			c.resp = &clientv3.TxnResponse{Header: header, Succeeded: true, Responses: own.Responses[at : at+n : at+n]}
			at += n
			close(c.settled)
		}
	}
	return false
}

// Joint groups cost etcd and client much less than nested transactions, for each of which etcd
// checks that no key is put twice, walks through conditions, and makes a reply. But one refusal
// costs all calls of the group another round trip. So only calls take part whose like were not
// refused lately.

// leastJoint is the least limit of etcd for which calls are joined: below, what they are nested in
// would have no room.
const leastJoint = 16

// jointly reports whether a call can be of a joint group. If that is refused the call is sent again,
// so its second branch is carried out then.
func jointly(r *Request) bool {
	if r.Nested || r.Void != nil {
		return false // it does something, or is told something, whether or not its conditions hold
	}
	for _, op := range r.In.Success {
		if op.GetRequestTxn() != nil {
			return false // what it needs of etcd's limit would have to be counted
		}
	}
	return true
}

// split returns the calls that are to be of joint groups now, and the others.
func (b *Batcher) split(calls []*call) (joint, apart []*call) {
	if b.MaxOps() < leastJoint {
		return nil, calls
	}
	var could [2]int
	for _, c := range calls {
		if c.joint {
			could[c.urgency()]++
		}
	}
	var may [2]bool
	for i, n := range could {
		may[i] = n > 1 && b.doubts[i].Over()
	}
	for _, c := range calls {
		if c.joint && may[c.urgency()] {
			joint = append(joint, c)
		} else {
			apart = append(apart, c)
		}
	}
	return joint, apart
}

// mostJoint is how many operations a joint group has at most. The others are for what it is nested in.
func (b *Batcher) mostJoint() int { return b.MaxOps() * 3 / 4 }

// join makes joint groups of calls.
func (b *Batcher) join(calls []*call) (groups []group) {
	from, conditions, ops := 0, 0, 0
	for i, c := range calls {
		conditions, ops = conditions+len(c.In.Compare), ops+len(c.In.Success)
		if i > from && (max(conditions, ops) > b.mostJoint() || c.Urgent != calls[from].Urgent) {
			groups = append(groups, group{kind: joint, calls: calls[from:i]})
			from, conditions, ops = i, len(c.In.Compare), len(c.In.Success)
		}
	}
	return append(groups, group{kind: joint, calls: calls[from:]})
}
