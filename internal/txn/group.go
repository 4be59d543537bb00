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

// jointly reports whether a call can be of a joint group: it is refused by its own conditions
// only, and then nothing of it has been carried out.
func jointly(r *Request) bool {
	if r.Nested || r.Void != nil {
		return false
	}
	for _, op := range r.In.Success {
		if op.GetRequestTxn() != nil {
			return false // what it needs of etcd's limit would have to be counted
		}
	}
	return true
}

// split returns the calls that may be of joint groups now, and the others.
func (b *Batcher) split(calls []*call) (joint, apart []*call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var may [2]bool
	for i := range b.doubts {
		may[i] = b.doubts[i].Over()
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

// join makes joint groups of calls.
func (b *Batcher) join(calls []*call) (groups []group) {
	most := b.MaxOps() * 3 / 4 // the others are for what the groups are nested in
	from, conditions, ops := 0, 0, 0
	for i, c := range calls {
		conditions, ops = conditions+len(c.In.Compare), ops+len(c.In.Success)
		if i > from && (max(conditions, ops) > most || c.Urgent != calls[from].Urgent) {
			groups = append(groups, group{kind: joint, calls: calls[from:i]})
			from, conditions, ops = i, len(c.In.Compare), len(c.In.Success)
		}
	}
	return append(groups, group{kind: joint, calls: calls[from:]})
}

// learn notes how joint groups have ended. The calls that were refused are sent again apart.
func (b *Batcher) learn(groups []group, refused []*call) {
	if groups[0].kind != joint {
		return // they come first
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var was [2]bool
	for _, c := range refused {
		c.joint, was[c.urgency()] = false, true
	}
	var took [2]bool
	for _, g := range groups {
		if g.kind == joint {
			took[g.calls[0].urgency()] = true
		}
	}
	for i := range b.doubts {
		if took[i] {
			b.doubts[i].Learn(was[i])
		}
	}
}
