package simulation

import (
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// aimed is a fault that waits for its moment.
type aimed struct {
	*claimtest.Injection
	seen chan any // the request that it happened to
	end  func()
}

// aim injects a fault, and tells when it happens.
func (w *world) aim(p *process, f claimtest.Fault) *aimed {
	a := &aimed{seen: make(chan any, 1)}
	f.Saw = func(req any) {
		if in, ok := req.(*pb.TxnRequest); ok {
			if calls, _ := callsOf(in); len(calls) > 1 {
				w.count(countAimed)
			}
		}
		select {
		case a.seen <- req:
		default:
		}
	}
	a.Injection = p.inject(f)
	end := w.ledger.begin(span{who: p, injection: a.Injection})
	a.end = func() { a.Remove(); end() }
	p.later(recovery, a.end)
	return a
}

// wait returns the request that the fault happens to, nil if none comes.
func (a *aimed) wait(d time.Duration) any {
	select {
	case req := <-a.seen:
		return req
	case <-time.After(d):
		return nil
	}
}

// letGo returns a channel that keeps a request on its way for a while.
func (w *world) letGo(most time.Duration) <-chan struct{} {
	hold := make(chan struct{})
	time.AfterFunc(between(w.rng, 0, most), func() { close(hold) })
	return hold
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
	case 0:
		f.LoseReply = true
	case 1:
		f.LoseRequest = true
	case 2: // its callers give up before it arrives
		f.Hold, how.hasty = w.letGo(p.ttl), true
	case 3: // some of them do
		f.DelayRequest, how.hasty = between(w.rng, 0, 300*time.Millisecond), true
	case 4, 5, 6:
		f.DelayRequest, how.mixed = between(w.rng, 20*time.Millisecond, 500*time.Millisecond), true
	case 7:
		f.DelayRequest, f.LoseReply = between(w.rng, 0, 300*time.Millisecond), w.rng.IntN(3) == 0
		how.hasty = true
	}
	if how.hasty || how.mixed {
		f.On, f.Skip = steps.Take, 2 // go alone, and the others meanwhile share one
	}
	a := w.aim(p, f)
	rng := split(w.rng)
	p.wg.Go(func() { p.burst(rng, how) })
	if what < 4 || what > 6 {
		return
	}
	req := a.wait(5 * time.Second)
	leases := leasesIn(req)
	if len(leases) == 0 {
		return
	}
	if what == 6 {
		w.count("fault: epoch raised under a batch")
		w.server.RaiseEpoch(w, "")
		return
	}
	if len(leases) > 1 {
		w.count("fault: one lease of a batch revoked")
	}
	w.revoke(clientv3.LeaseID(leases[w.rng.IntN(len(leases))]))
}

// handOverUnderFire lets something happen to who hands a key over, or to whom,
// while that is on its way.
func (w *world) handOverUnderFire(p *process) {
	f := claimtest.Fault{On: steps.HandOver, Skip: max(0, w.rng.IntN(4)-1)}
	what := w.rng.IntN(9)
	switch what {
	case 0, 1:
		f.Hold = w.letGo(p.ttl)
	case 2:
		f.LoseRequest = true
	case 3:
		f.LoseReply = true
	case 4:
		f.DelayRequest = between(w.rng, 0, 3*time.Millisecond)
	case 6: // some while after its machine has woken
		f.DelayRequest = between(w.rng, 0, 4*time.Second)
	default:
		f.DelayRequest = between(w.rng, 0, 50*time.Millisecond)
	}
	a := w.aim(p, f)
	w.contend(p)
	req := a.wait(5 * time.Second)
	if req == nil {
		a.end()
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
	case 4:
		time.Sleep(between(w.rng, 0, 3*time.Millisecond))
		to.waits.giveUp(key)
	case 5:
		time.Sleep(between(w.rng, 0, 50*time.Millisecond))
		to.waits.giveUp(key)
	case 6:
		end := w.ledger.begin(span{who: to, outage: true})
		to.sleep(2 * to.ttl)
		end()
	case 7:
		if leases := leasesIn(req); len(leases) > 0 {
			w.revoke(clientv3.LeaseID(leases[w.rng.IntN(len(leases))]))
		}
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
