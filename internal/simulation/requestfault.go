package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"google.golang.org/grpc/codes"
)

// requests that can be disturbed.
var kinds = []claimtest.Kind{
	claimtest.Every, steps.Take, steps.Take, steps.Enqueue, steps.Enqueue, steps.Advance, steps.Resolve, steps.Undo,
	steps.Note, steps.Free, steps.Free, steps.HandOver, claimtest.Ending, claimtest.Ending, steps.Rehome, steps.Leave,
	claimtest.Grant, steps.Sentinel, claimtest.KeepAlive, claimtest.KeepAlive, claimtest.Verify, claimtest.Verify, claimtest.Other, claimtest.Other, claimtest.Watch,
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
	claimtest.Other, claimtest.Other, claimtest.Other, claimtest.Other, claimtest.Verify, steps.Take, claimtest.Grant, claimtest.Watch, claimtest.KeepAlive,
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
