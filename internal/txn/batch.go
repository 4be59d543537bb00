package txn

import (
	"slices"

	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostLeases is how many leases the tickets of one round trip may be of. Each costs a
// condition.
const mostLeases = 16

// batch is a round trip that is being filled.
type batch struct {
	b            *Batcher
	calls        []*call
	voids        []*Void
	epoch        *Epoch
	leases       []clientv3.LeaseID // each of them gets a ticket
	widest, size int
	full         bool
}

// fill takes the calls that fit one round trip from the queues; b.mu is held. No key
// occurs twice, because etcd evaluates the conditions of all calls before it carries
// any out. All calls with an epoch have the same one, and those of one lease share a
// ticket. Unless all may be sent, only urgent calls are taken.
func (b *Batcher) fill(all bool) []*call {
	clear(b.keys)
	t := batch{b: b, calls: make([]*call, 0, min(len(b.urgent)+len(b.queue), FullBatch))}
	b.urgent = t.take(b.urgent)
	if all && !t.full {
		b.queue = t.take(b.queue)
	}
	if len(t.calls) > 1 {
		tickets := make(map[clientv3.LeaseID]string, len(t.leases))
		for _, lease := range t.leases {
			tickets[lease] = uuid.NewString()
		}
		for _, c := range t.calls {
			if c.Ticket != nil {
				c.ticket = tickets[c.TicketLease]
				*c.Ticket = c.ticket
			}
		}
	}
	return t.calls
}

// take adds the calls that fit, and returns the others.
func (t *batch) take(queue []*call) []*call {
	b, bytes := t.b, int(t.b.bytes.Load())
	var left []*call
	at := 0
	for ; at < len(queue); at++ {
		c := queue[at]
		if c.gone || c.ctx.Err() != nil {
			continue // its caller notices by itself
		}
		if !t.admits(c) {
			left = append(left, c)
			continue
		}
		w, voids, leases := max(t.widest, c.width), addVoid(t.voids, c), addLease(t.leases, c)
		if n := len(t.calls); n > 0 && (n >= b.capacity(w+len(voids)+max(0, len(leases)-1)) || t.size+c.size > bytes) {
			t.full = true
			break
		}
		if c.Epoch != nil {
			t.epoch = c.Epoch
		}
		b.keys[c.Key] = t.beside(c)
		for _, key := range c.Also {
			b.keys[key] = BesideNone
		}
		c.sent = true
		c.depart()
		t.widest, t.size, t.voids, t.leases = w, t.size+c.size, voids, leases
		t.calls = append(t.calls, c)
	}
	if rest := queue[at:]; len(left) == 0 {
		return rest
	} else {
		return append(left, rest...)
	}
}

// admits reports whether a call may share the round trip.
func (t *batch) admits(c *call) bool {
	if t.b.delays.before(&c.Request) != nil {
		return false
	}
	if t.epoch != nil && c.Epoch != nil && !t.epoch.Is(c.Epoch) {
		return false
	}
	if len(addLease(t.leases, c)) > mostLeases {
		return false
	}
	if len(t.calls) > 0 && t.calls[0].meta.Name != c.meta.Name {
		return false // it would be sent with another caller's credentials
	}
	if kind, twice := t.b.keys[c.Key]; twice {
		if _, ok := kind.with(c.Beside); !ok {
			return false
		}
	}
	return !slices.ContainsFunc(c.Also, func(key string) bool {
		_, twice := t.b.keys[key]
		return twice
	})
}

// beside returns of what kind the requests for a call's key are, with the call that is
// admitted.
func (t *batch) beside(c *call) Beside {
	kind, twice := t.b.keys[c.Key]
	if !twice {
		return c.Beside
	}
	kind, _ = kind.with(c.Beside)
	return kind
}

// capacity returns how many calls of a width fit one round trip. The calls of a group
// are nested in a transaction, and the groups in another. The operations of both
// levels and the call's own must not exceed etcd's limit together.
func (b *Batcher) capacity(width int) int {
	if b.cfg.Flat {
		return max(1, min(FullBatch, b.MaxOps()))
	}
	rest := max(0, b.MaxOps()-width-len(b.cfg.Also))
	return max(1, min(FullBatch, (rest/2)*(rest-rest/2)))
}

// groupSize returns how many calls are nested in one transaction of the second level,
// 1 if there is no second level.
func (b *Batcher) groupSize(calls, width int) int {
	rest := b.MaxOps() - width - len(b.cfg.Also)
	if calls <= rest {
		return 1
	}
	return max(2, rest/2)
}

// message is the transaction of a round trip. Its first operations are those of the groups,
// in their order; the others are what the calls share.
type message struct {
	in     *pb.TxnRequest
	groups []group
}

// pack puts calls into one transaction.
func (b *Batcher) pack(calls []*call) message {
	if b.cfg.Flat {
		return b.list(calls)
	}
	if joint, apart := b.split(calls); len(joint) > 0 {
		groups := b.join(joint)
		room := max(1, b.MaxOps()-b.mostJoint()-len(groups)-len(b.cfg.Also))
		groups = append(groups, nest(apart, max(1, (len(apart)+room-1)/room))...)
		if m := b.compose(calls, groups); width(m.in) <= b.MaxOps() {
			return m
		}
	}
	return b.compose(calls, b.nest(calls))
}

// list puts the operation of each call into one transaction without conditions.
func (b *Batcher) list(calls []*call) message {
	m := message{in: &pb.TxnRequest{Success: make([]*pb.RequestOp, len(calls))}, groups: make([]group, len(calls))}
	for i, c := range calls {
		m.in.Success[i], m.groups[i] = c.In.Success[0], group{kind: listed, calls: calls[i : i+1]}
	}
	return m
}

// nest makes each call a transaction of its own: in groups of one if they fit, otherwise in a
// second level.
func (b *Batcher) nest(calls []*call) []group {
	widest, voids, leases := 0, []*Void(nil), []clientv3.LeaseID(nil)
	for _, c := range calls {
		widest, voids, leases = max(widest, c.width), addVoid(voids, c), addLease(leases, c)
	}
	return nest(calls, b.groupSize(len(calls), widest+len(voids)+max(0, len(leases)-1))) // widest has one
}

func nest(calls []*call, size int) []group {
	groups := make([]group, 0, len(calls)/size+1)
	for some := range slices.Chunk(calls, size) {
		groups = append(groups, group{kind: nested, calls: some})
	}
	return groups
}

// compose returns the transaction of groups, under the conditions that their calls share.
func (b *Batcher) compose(calls []*call, groups []group) message {
	var tickets []string
	var epoch *Epoch
	var voids []*Void
	for _, c := range calls {
		voids = addVoid(voids, c)
		if c.Ticket != nil && !slices.Contains(tickets, c.ticket) {
			tickets = append(tickets, c.ticket)
		}
		if c.Epoch != nil {
			epoch = c.Epoch
		}
	}
	in := &pb.TxnRequest{Compare: b.cfg.shared(tickets, epoch)}
	if len(in.Compare) > 0 {
		in.Failure = []*pb.RequestOp{Get(b.cfg.EpochKey)}
	}
	in.Success = make([]*pb.RequestOp, 0, len(groups)+len(voids)+len(b.cfg.Also))
	for _, g := range groups {
		in.Success = append(in.Success, Nest(g.message()))
	}
	for _, v := range voids {
		in.Success = append(in.Success, b.cfg.putVoid(v))
	}
	in.Success = append(in.Success, b.cfg.Also...)
	return message{in: in, groups: groups}
}

// shared returns the conditions of tickets and an epoch, if there are any.
func (c *Config) shared(tickets []string, e *Epoch) []*pb.Compare {
	if len(tickets) == 0 && e == nil {
		return nil
	}
	cmps := make([]*pb.Compare, 0, len(tickets)+3)
	if e != nil {
		cmps = append(cmps, ModifiedAt(c.EpochKey, e.Rev))
	}
	for _, ticket := range tickets {
		cmps = append(cmps, CreatedAt([]byte(c.VoidKey(ticket)), 0))
	}
	return cmps
}

func (c *Config) putVoid(v *Void) *pb.RequestOp {
	return Put([]byte(c.VoidKey(v.Ticket)), VoidValue, v.Lease)
}

// addVoid adds what the call voids, unless another call voids it too.
func addVoid(voids []*Void, c *call) []*Void {
	if c.Void == nil || slices.ContainsFunc(voids, func(v *Void) bool { return v.Ticket == c.Void.Ticket }) {
		return voids
	}
	return append(voids, c.Void)
}

// addLease adds the lease of the call's ticket, if it has one, unless it is there.
func addLease(leases []clientv3.LeaseID, c *call) []clientv3.LeaseID {
	if c.Ticket == nil || slices.Contains(leases, c.TicketLease) {
		return leases
	}
	return append(leases, c.TicketLease)
}
