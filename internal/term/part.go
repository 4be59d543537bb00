package term

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
)

// A parting is a term that has ended, by a release that no caller waits for. Its key is still there: the request that
// deletes it is sent with the next one of the client, or soon. An attempt of the client can take the key over before.
type parting struct {
	x       exit
	request *txn.Delayed  // the first one
	unsure  bool          // an attempt of this client may have taken the key over; set before the request is sent
	ended   chan struct{} // closed when observers know of the end of the term

	// Of the cleanup:
	began  bool // the request has its outcome
	failed bool // it was reported
}

// partings are those of a client that are not over. There is one for a key at most.
type partings struct {
	mu sync.Mutex // no other is taken while it is held
	of map[string]*parting
	n  atomic.Int32 // how many there are, so that clients without any take no lock
}

// unawaited reports whether no caller waits for the term, as far as the client knows.
func (t *Term) unawaited() bool {
	return !t.Noticed && !t.line.More && len(t.line.Next) == 0 && !t.terms.Local.Awaited(&t.local) && !t.terms.Keys.WaitedFor(t.Key)
}

// part ends the term. Its key is deleted in the background.
func (t *Term) part() {
	ts := t.terms
	p := &parting{x: t.release(), ended: make(chan struct{})}
	defer close(p.ended)
	p.request = ts.Store.Later(p.x.Step(protocol.EndEvent{Kind: protocol.EndBegins}).Request)
	ts.parted.add(t.Key, p)
	ts.CleanUp(t.ID, &lease.Cleanup{Of: t.s, Over: func() { ts.parted.remove(t.Key, p) }, What: "releasing a claim", Do: p.do})
	t.finish(claimerr.ErrReleased)
	ts.countRelease(nil)
}

// do deletes the key, and reports the first failure.
func (p *parting) do(ctx context.Context) error {
	a, err := p.try(ctx)
	if t := p.x.t; err == nil && a.Kind == protocol.EndLost {
		t.clearAway()
		if !p.unsure {
			p.report(ctx, claimerr.Loss{Reason: claimerr.Superseded}.Of(t.Token()))
		}
	}
	p.report(ctx, err)
	return err
}

// report reports a failure, unless the end of the lease has deleted the key, or will.
func (p *parting) report(ctx context.Context, err error) {
	if err == nil {
		return
	}
	select {
	case <-p.ended:
	case <-ctx.Done(): // an observer waits for the cleanup
	}
	if t := p.x.t; !p.failed && !t.s.Ended() && t.terms.Life.IO.Err() == nil {
		p.failed = true
		t.terms.Observer.ReleaseFailed(t, err)
	}
}

// try waits for the outcome of the request, or makes another one.
func (p *parting) try(ctx context.Context) (protocol.EndAction, error) {
	if p.began {
		return p.x.settle(ctx, p.x.resume())
	}
	p.began = true
	resp, err := p.request.Await()
	if errors.Is(err, txn.ErrDropped) {
		return protocol.EndAction{Kind: protocol.EndReleased}, nil
	}
	ev := p.x.came(resp, err)
	p.x.trace(ev)
	return p.x.settle(ctx, p.x.Step(ev))
}

// Parted returns the term of a key that a release has ended, if the key is still there under the epoch, and no other
// attempt takes it over; else nil. Its caller calls over with how an attempt to take the key over has ended. If the attempt
// does not have the key, it is deleted, as it would have been.
func (ts *Terms) Parted(key string, epoch *txn.Epoch) (t *Term, over func(how protocol.Answer)) {
	p := ts.parted.get(key)
	if p == nil || p.x.t.EpochRev != epoch.Rev || !p.request.Hold() {
		return nil, nil
	}
	return p.x.t, func(how protocol.Answer) {
		if how == protocol.AnswerWon {
			p.request.Drop()
			return
		}
		p.unsure = how == protocol.AnswerUnsettled
		p.request.Resume()
	}
}

func (ps *partings) add(key string, p *parting) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.of == nil {
		ps.of = make(map[string]*parting)
	}
	ps.of[key] = p
	ps.n.Store(int32(len(ps.of)))
}

// remove removes a parting, unless the key has another by now.
func (ps *partings) remove(key string, p *parting) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.of[key] == p {
		delete(ps.of, key)
		ps.n.Store(int32(len(ps.of)))
	}
}

func (ps *partings) get(key string) *parting {
	if ps.n.Load() == 0 {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.of[key]
}
