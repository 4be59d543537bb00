package simulation

import (
	"fmt"
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
		hold := make(chan struct{})
		after := between(rng, 0, 2*longTTL)
		time.AfterFunc(after, func() { close(hold) })
		f.Hold = hold
	}
	return f
}

func (w *world) disturbOne(p *process) {
	f := disturbance(w.rng)
	w.history.Logf("%s: %s", p.name, describe(f))
	i := p.inject(f)
	end := w.ledger.begin(span{who: p, injection: i})
	p.later(recovery, func() { p.remove(i, f); end() })
}

func (w *world) disturbSome(p *process) {
	f := disturbance(w.rng)
	f.Times = 2 + w.rng.IntN(12)
	w.history.Logf("%s: %s", p.name, describe(f))
	i := p.inject(f)
	end := w.ledger.begin(span{who: p, injection: i, outage: true})
	p.later(between(w.rng, time.Second, longTTL), func() { p.remove(i, f); end() })
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

func describe(f claimtest.Fault) string {
	kind := f.On
	if kind == claimtest.Every {
		kind = "anything"
	}
	return fmt.Sprintf("%s, %d times after %d: delayed %v and %v, request lost %t, reply lost %t, answered %v, held %t",
		kind, max(1, f.Times), f.Skip, f.DelayRequest, f.DelayReply, f.LoseRequest, f.LoseReply, f.Code, f.Hold != nil)
}
