package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// requests that can be disturbed.
var kinds = []claimtest.Kind{
	claimtest.Every, steps.Take, steps.Take, steps.Enqueue, steps.Enqueue, steps.Advance, steps.Resolve, steps.Undo,
	steps.Note, steps.Free, steps.Free, steps.HandOver, claimtest.Ending, claimtest.Ending, steps.Rehome, steps.Leave,
	claimtest.Grant, steps.Sentinel, claimtest.KeepAlive, claimtest.KeepAlive, claimtest.Verify, claimtest.Verify,
	claimtest.Other, claimtest.Other, claimtest.Watch,
	claimtest.Revoke,
}

var answers = []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Aborted}

// letGo returns a channel that keeps a request on its way for a while.
func letGo(rng *rand.Rand, most time.Duration) <-chan struct{} {
	hold := make(chan struct{})
	time.AfterFunc(between(rng, 0, most), func() { close(hold) })
	return hold
}

// disturbance returns what happens to a request.
func disturbance(rng *rand.Rand) claimtest.Fault {
	f := claimtest.Fault{On: kinds[rng.IntN(len(kinds))], Skip: rng.IntN(3)}
	switch rng.IntN(6) {
	case 0:
		f.LoseRequest = true
	case 1, 2:
		f.LoseReply = true
	case 3:
		f.DelayRequest = between(rng, 0, 4*time.Second)
	case 4:
		f.DelayReply = between(rng, 0, 4*time.Second)
	case 5:
		f.Code = answers[rng.IntN(len(answers))]
		f.LoseReply = rng.IntN(2) == 0
	}
	if rng.IntN(8) == 0 {
		f.Hold = letGo(rng, 2*longTTL)
	}
	return f
}

func (w *world) disturbOne(p *process) { w.disturb(p, disturbance(w.rng), recovery) }

func (w *world) disturbSome(p *process) {
	f := disturbance(w.rng)
	f.Times = 2 + w.rng.IntN(12)
	w.disturb(p, f, between(w.rng, time.Second, longTTL))
}

// disturb lets the fault happen to requests of the process, for a while or until the end. More than one is an outage.
func (w *world) disturb(p *process, f claimtest.Fault, lasts time.Duration) (end func()) {
	w.history.Logf("%s: %+v", p.name, f)
	i := p.inject(f)
	ended := w.ledger.begin(span{who: p, injection: i, outage: f.Times > 1})
	end = func() { p.remove(i, f); ended() }
	p.later(lasts, end)
	return end
}

// remove ends a fault. A stream that began under a delay keeps it for as long as
// it lasts, and what comes on it is late by more and more: so it ends, too.
func (p *process) remove(i *claimtest.Injection, f claimtest.Fault) {
	i.Remove()
	if f.DelayReply > 0 && i.Hits() > 0 && (f.On == claimtest.Watch || f.On == claimtest.Every) {
		p.host.Break()
		time.Sleep(2 * time.Second)
	}
}

// queueKinds are what the queue's requests are, mostly: its transactions, its reads,
// what opens its sessions and remembers its items, and its watches.
var queueKinds = []claimtest.Kind{
	claimtest.Other, claimtest.Other, claimtest.Other, claimtest.Other, claimtest.Verify, steps.Take, claimtest.Grant,
	claimtest.Watch, claimtest.KeepAlive,
}

// queueUnderFire disturbs requests of a process that has the queue, or takes a
// session of the queue away.
func (w *world) queueUnderFire() {
	for range 2 + w.rng.IntN(4) {
		p := w.slots[w.rng.IntN(queueSlots)]
		switch w.rng.IntN(16) {
		case 0:
			w.takeSession()
			continue
		case 1:
			w.killProcess(p)
			continue
		}
		f := disturbance(w.rng)
		f.On = queueKinds[w.rng.IntN(len(queueKinds))]
		if w.rng.IntN(4) == 0 {
			f.Times = 2 + w.rng.IntN(3)
		}
		w.count("fault: queue request disturbed")
		w.disturb(p, f, recovery/2)
		time.Sleep(between(w.rng, 0, 3*time.Second))
	}
}

// takeSession deletes the claim of a session of the queue, as a forced release does,
// or its lease.
func (w *world) takeSession() {
	key, lease := w.heldUnder(queueSessions)
	switch {
	case key == "":
	case w.rng.IntN(2) == 0:
		w.revoke(lease)
	default:
		w.take(key, deleted)
	}
}

// aim injects a fault. It returns how to wait for the request that it happens to, which is nil if none comes, and
// how to end it.
func (w *world) aim(p *process, f claimtest.Fault) (wait func() any, end func()) {
	seen := make(chan any, 1)
	f.Saw = func(req any) {
		if in, ok := req.(*pb.TxnRequest); ok {
			if calls, _ := callsOf(in); len(calls) > 1 {
				w.count("batches that a fault hit")
			}
		}
		select {
		case seen <- req:
		default:
		}
	}
	end = w.disturb(p, f, recovery)
	return func() any {
		select {
		case req := <-seen:
			return req
		case <-time.After(5 * time.Second):
			return nil
		}
	}, end
}

// burstUnderFire lets something happen to a round trip that several share.
func (w *world) burstUnderFire(p *process) {
	f := claimtest.Fault{On: steps.Take, Skip: w.rng.IntN(3)}
	if w.rng.IntN(4) == 0 {
		f.On = steps.Free
	}
	var how temper
	what := w.rng.IntN(8)
	switch what {
	case 0, 1:
		f.LoseReply, f.LoseRequest = what == 0, what == 1
	case 2: // its callers give up before it arrives
		f.Hold, how.hasty = letGo(w.rng, p.ttl), true
	case 3: // some of them do
		f.DelayRequest, how.hasty = between(w.rng, 0, 300*time.Millisecond), true
	case 4, 5, 6:
		f.DelayRequest, how.mixed = between(w.rng, 20*time.Millisecond, 500*time.Millisecond), true
	default:
		f.DelayRequest, f.LoseReply, how.hasty = between(w.rng, 0, 300*time.Millisecond), w.rng.IntN(3) == 0, true
	}
	if how.hasty || how.mixed {
		f.On, f.Skip = steps.Take, 2 // go alone, and the others meanwhile share one
	}
	wait, _ := w.aim(p, f)
	rng := split(w.rng)
	p.wg.Go(func() { p.burst(rng, how) })
	if what < 4 || what > 6 {
		return
	}
	switch req := wait(); {
	case req == nil:
	case what == 6:
		w.count("fault: epoch raised under a batch")
		w.server.RaiseEpoch(w, "")
	default:
		w.revokeOne(req)
	}
}

// revokeOne revokes one of the leases that a request puts keys on.
func (w *world) revokeOne(req any) {
	var leases []int64
	for _, in := range transactions(req) {
		for _, op := range in.Success {
			if l := op.GetRequestPut().GetLease(); l != 0 && !slices.Contains(leases, l) {
				leases = append(leases, l)
			}
		}
	}
	if len(leases) > 1 {
		w.count("fault: one lease of a batch revoked")
	}
	if len(leases) > 0 {
		w.revoke(clientv3.LeaseID(leases[w.rng.IntN(len(leases))]))
	}
}

// handOverUnderFire lets something happen to who hands a key over, or to whom,
// while that is on its way.
func (w *world) handOverUnderFire(p *process) {
	f := claimtest.Fault{On: steps.HandOver, Skip: max(0, w.rng.IntN(4)-1)}
	what, moment := w.rng.IntN(9), 50*time.Millisecond
	switch what {
	case 0, 1:
		f.Hold = letGo(w.rng, p.ttl)
	case 2, 3:
		f.LoseRequest, f.LoseReply = what == 2, what == 3
	case 4:
		moment = 3 * time.Millisecond
	case 6: // some while after its machine has woken
		moment = 4 * time.Second
	}
	if what > 3 {
		f.DelayRequest = between(w.rng, 0, moment)
	}
	wait, end := w.aim(p, f)
	w.contend(p)
	req := wait()
	if req == nil {
		end()
		return
	}
	to, key := w.receiver(req)
	if to == nil {
		return
	}
	w.count("fault: hand-over disturbed")
	switch what {
	case 0:
		w.killProcess(p)
	case 1:
		w.cut(p)
	case 4, 5:
		time.Sleep(between(w.rng, 0, moment))
		to.giveUp(key)
	case 6:
		end := w.ledger.begin(span{who: to, outage: true})
		to.sleep(2 * to.ttl)
		end()
	case 7:
		w.revokeOne(req)
	case 8:
		w.killProcess(to)
	}
}

// loseNotices keeps some handoff notices from a process that waits for them.
func (w *world) loseNotices(p *process) {
	if p.spy == nil {
		return
	}
	p.spy.mu.Lock()
	p.spy.deaf += 1 + w.rng.IntN(3)
	p.spy.mu.Unlock()
	w.contend(p)
}
