package etcdclaims

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/etcdclaims/claims/internal/wire"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// boarding is a round trip that is being filled.
type boarding struct {
	s            *store
	riders       []*rider
	voids        []*void
	e            *epoch
	widest, size int
	full         bool
}

// board takes from those who wait what fits one round trip, no key twice: etcd
// judges the conditions of all before it carries any out. Those with an epoch
// share it, and all share a ticket. Unless all may come, only those go that go
// first.
func (s *store) board(all bool) []*rider {
	clear(s.aboard)
	b := boarding{s: s, riders: make([]*rider, 0, min(len(s.first)+len(s.queue), fullFlight))}
	s.first = b.take(s.first)
	if all && !b.full {
		s.queue = b.take(s.queue)
	}
	if len(b.riders) > 1 {
		ticket := uuid.NewString()
		for _, m := range b.riders {
			if m.ticket != nil {
				*m.ticket = ticket
			}
		}
	}
	return b.riders
}

// take lets those aboard that fit, and returns the others.
func (b *boarding) take(queue []*rider) []*rider {
	s, bytes := b.s, int(b.s.byteLimit.Load())
	var left []*rider
	at := 0
	for ; at < len(queue); at++ {
		m := queue[at]
		if m.left || m.ctx.Err() != nil {
			continue // it notices by itself
		}
		if !b.together(m) {
			left = append(left, m)
			continue
		}
		w, voids := max(b.widest, m.width), addVoid(b.voids, m)
		if n := len(b.riders); n > 0 && (n >= s.seats(w+len(voids)) || b.size+m.size > bytes) {
			b.full = true
			break
		}
		if m.epoch != nil {
			b.e = m.epoch
		}
		s.aboard[m.key] = m.takesBack
		for _, key := range m.also {
			s.aboard[key] = false
		}
		m.aboard = true
		m.departs()
		m.wait.begin()
		b.widest, b.size, b.voids = w, b.size+m.size, voids
		b.riders = append(b.riders, m)
	}
	if rest := queue[at:]; len(left) == 0 {
		return rest
	} else {
		return append(left, rest...)
	}
}

// together reports whether a rider may go with those who are aboard.
func (b *boarding) together(m *rider) bool {
	if b.e != nil && m.epoch != nil && !b.e.is(m.epoch) {
		return false
	}
	if len(b.riders) > 0 && b.riders[0].meta.text != m.meta.text {
		return false // it would be sent with what another's caller says of itself
	}
	if takesBack, twice := b.s.aboard[m.key]; twice && !(takesBack && m.takesBack) {
		return false
	}
	return !slices.ContainsFunc(m.also, func(key string) bool {
		_, twice := b.s.aboard[key]
		return twice
	})
}

// seats is how many riders of a width fit one round trip: those of a group stand
// in a transaction, and the groups in another, which together with what a rider
// takes must not exceed etcd's limit.
func (s *store) seats(width int) int {
	rest := max(0, int(s.opLimit.Load())-width)
	return max(1, min(fullFlight, (rest/2)*(rest-rest/2)))
}

// nest puts riders into one transaction: in one level if they fit, and else in
// two. So many of its operations carry them; the others are what they share.
func (s *store) nest(riders []*rider) (in *pb.TxnRequest, carrying int) {
	widest := 0
	in = new(pb.TxnRequest)
	var ticket *string
	var e *epoch
	var voids []*void
	for _, m := range riders {
		voids = addVoid(voids, m)
		widest = max(widest, m.width)
		if m.ticket != nil {
			ticket = m.ticket
		}
		if m.epoch != nil {
			e = m.epoch
		}
	}
	in.Compare = s.shared(ticket, e)
	if len(in.Compare) > 0 {
		in.Failure = []*pb.RequestOp{getOp(s.epochKey)}
	}
	group := s.group(len(riders), widest+len(voids))
	in.Success = make([]*pb.RequestOp, 0, len(riders)/group+1)
	for from := 0; from < len(riders); from += group {
		if group == 1 {
			in.Success = append(in.Success, txnOp(riders[from].built))
			continue
		}
		inner := &pb.TxnRequest{Success: make([]*pb.RequestOp, 0, group)}
		for _, m := range riders[from:min(from+group, len(riders))] {
			inner.Success = append(inner.Success, txnOp(m.built))
		}
		in.Success = append(in.Success, txnOp(inner))
	}
	carrying = len(in.Success)
	for _, v := range voids {
		in.Success = append(in.Success, s.voidOp(v))
	}
	return in, carrying
}

// addVoid adds what the rider makes void, unless another does.
func addVoid(voids []*void, m *rider) []*void {
	if m.void == nil || slices.ContainsFunc(voids, func(v *void) bool { return v.ticket == m.void.ticket }) {
		return voids
	}
	return append(voids, m.void)
}

// group is how many riders stand in one transaction of the second level, 1 if
// there is none.
func (s *store) group(riders, width int) int {
	rest := int(s.opLimit.Load()) - width
	if riders <= rest {
		return 1
	}
	return max(2, rest/2)
}

// fly carries the riders.
func (s *store) fly(riders []*rider) {
	if len(riders) == 1 {
		s.alone(riders[0])
		return
	}
	in, carrying := s.nest(riders)
	ctx := riders[0].meta.context(s.io)
	resp, err := s.sendBuilt(ctx, in, s.timeout)
	switch {
	case err == nil && resp.Succeeded:
		s.arrive(riders, resp.Responses[:carrying], resp)
	case err == nil:
		s.turnedAway(riders, resp)
	case errors.Is(err, rpctypes.ErrNoSpace):
		s.outOfSpace(ctx, riders, err)
	case errors.Is(err, ErrUnknown):
		fail(riders, err)
	case s.tooMuch(err, in, riders):
		s.requeue(riders)
	case isTransient(err):
		fail(riders, err) // for all the same: they come again when they have paused
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.byLease(riders, err)
	default:
		s.oneByOne(riders)
	}
}

// turnedAway deals with a flight whose shared conditions did not hold: another
// epoch concerns those who asked for one; else a caller among them that had given
// up made the ticket void for all.
func (s *store) turnedAway(riders []*rider, resp *clientv3.TxnResponse) {
	kv, rev := firstKV(resp, 0), int64(0)
	if kv != nil {
		rev = kv.ModRevision
	}
	var again, old []*rider
	for _, m := range riders {
		if m.epoch != nil && m.epoch.rev != rev {
			old = append(old, m)
		} else {
			again = append(again, m)
		}
	}
	s.requeue(again)
	s.oneByOne(old)
}

// requeue lets riders wait for another round trip, before all others.
func (s *store) requeue(riders []*rider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first, others []*rider
	for _, m := range riders {
		m.aboard = false
		if m.urgent {
			first = append(first, m)
		} else {
			others = append(others, m)
		}
	}
	s.first, s.queue = append(first, s.first...), append(others, s.queue...)
}

// byLease carries on after a refusal for a lease that is gone: of one of the
// riders, or of several. Those on one lease share its fate.
func (s *store) byLease(riders []*rider, err error) {
	groups := make(map[int64][]*rider)
	for _, m := range riders {
		groups[m.lease] = append(groups[m.lease], m)
	}
	if len(groups) == 1 && riders[0].lease != severalLeases {
		fail(riders, err)
		return
	}
	var wg sync.WaitGroup
	for lease, group := range groups {
		wg.Go(func() {
			if lease == severalLeases {
				s.oneByOne(group)
			} else {
				s.fly(group)
			}
		})
	}
	wg.Wait()
}

// oneByOne sends each by itself, at once: refused as a whole for what one of them
// is or wants, only that one shall see the error.
func (s *store) oneByOne(riders []*rider) {
	var wg sync.WaitGroup
	for _, m := range riders {
		wg.Go(func() { s.alone(m) })
	}
	wg.Wait()
}

// outOfSpace carries on with those of whom it is certain that nothing was done:
// one that needs no space may yet go by itself.
func (s *store) outOfSpace(ctx context.Context, riders []*rider, err error) {
	requests := make([]request, len(riders))
	for i, m := range riders {
		requests[i] = m.request
	}
	var again, unsure []*rider
	for i, untouched := range s.untouched(ctx, requests...) {
		if untouched {
			again = append(again, riders[i])
		} else {
			unsure = append(unsure, riders[i])
		}
	}
	fail(unsure, err)
	s.oneByOne(again)
}

func fail(riders []*rider, err error) {
	for _, m := range riders {
		m.err = err
		close(m.done)
	}
}

// tooMuch learns, of what was refused for its size, that etcd's limit is lower;
// false if that is not why, or no way to mend it.
func (s *store) tooMuch(err error, in *pb.TxnRequest, riders []*rider) bool {
	switch {
	case wire.IsTooManyOps(err):
		n := width(in)
		s.fewerOps(n)
		return n > leastOps
	case errors.Is(err, ErrTooLarge):
		n := 0 // as board counts: else the same riders might board again
		for _, m := range riders {
			n += m.size
		}
		s.fewerBytes(n)
		return n > leastBytes
	}
	return false
}

// arrive gives each rider its part of the reply.
func (s *store) arrive(riders []*rider, ops []*pb.ResponseOp, resp *clientv3.TxnResponse) {
	next := 0
	give := func(ops []*pb.ResponseOp) {
		for _, op := range ops {
			m := riders[next]
			if m.nested {
				m.resp = &clientv3.TxnResponse{Succeeded: true, Responses: []*pb.ResponseOp{op}}
			} else {
				m.resp = (*clientv3.TxnResponse)(op.GetResponseTxn())
			}
			m.resp.Header = resp.Header // nested replies carry none
			close(m.done)
			next++
		}
	}
	if len(ops) == len(riders) {
		give(ops)
		return
	}
	for _, op := range ops {
		give(op.GetResponseTxn().Responses)
	}
}

func (s *store) alone(m *rider) {
	s.mu.Lock()
	left := m.left
	if !left && m.ticket != nil {
		*m.ticket = m.own
	}
	s.mu.Unlock()
	if left {
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	defer context.AfterFunc(s.io, cancel)() // the client ends with its rider aboard
	m.resp, m.err = s.send(ctx, m.request)
	close(m.done)
}
