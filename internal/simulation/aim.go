package simulation

import (
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	leases := leasesIn(wait())
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
