package suspicion

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Accuser is a waiter that may take its key from a holder that does not answer, if both have
// agreed to that. The goroutine that waits calls its methods.
type Accuser struct {
	peers  *Peers
	lease  Lease
	key    string // that it waits for
	claim  string // the id that its claim will have
	news   chan struct{}
	silent chan silence // of the holder's client
	due    *atomic.Bool // it has waited for askAfter

	inquiry   *inquiry           // that asks the holder's client for it, or nil
	position  protocol.Position  // in line
	epoch     int64              // of its claim
	forbidden bool               // etcd does not permit to take the key
	suspected protocol.Suspicion // from whom it takes the key
}

// Accuser returns a waiter for the key of a caller. Its claim will be on the lease, as its
// questions are. End it with Leave.
func (p *Peers) Accuser(on Lease, key, claim string) *Accuser {
	return &Accuser{
		peers: p, lease: on, key: key, claim: claim, due: new(atomic.Bool),
		news: make(chan struct{}, 1), silent: make(chan silence, 1),
	}
}

// News receives a value when Opens may return something else than before.
func (w *Accuser) News() <-chan struct{} { return w.news }

// Begin notes that the wait begins, or continues at another position, until the returned
// function is called.
func (w *Accuser) Begin(p protocol.Position, epoch int64) (end func()) {
	w.position, w.epoch = p, epoch
	if h, ok := w.accuses(); w.inquiry != nil && (!ok || !w.asks(h.Instance)) {
		w.Leave()
	}
	due := new(atomic.Bool) // of this time: the timer may be late
	w.due = due
	timer := time.AfterFunc(askAfter, func() {
		due.Store(true)
		w.wake()
	})
	return func() { timer.Stop() }
}

// Saw deals with an event of what the waiter waits for: its key may have another claim, and the
// holder's client may be another.
func (w *Accuser) Saw(ev *clientv3.Event) {
	p := &w.position
	if p.Pred == nil && p.Own != nil && ev.Type == mvccpb.PUT && string(ev.Kv.Key) == string(p.Own.Key) {
		p.Own = ev.Kv
		w.ask()
	}
}

// Opens returns what takes the key from its holder if that client did not answer, or nil.
func (w *Accuser) Opens() *protocol.Over {
	if w.due.Swap(false) {
		w.ask()
	}
	select {
	case s := <-w.silent:
		return w.suspects(s)
	default:
		return nil
	}
}

// Failed reports whether err, of the request that should have taken the key so, means that the
// waiter continues to wait.
func (w *Accuser) Failed(over *protocol.Over, err error) bool {
	switch {
	case over == nil:
		return false
	case errors.Is(err, txn.ErrPermissionDenied):
		w.forbidden = true
		w.peers.inquiries.Log.Warn(
			"a suspected holder's key cannot be taken before its lease ends: see Suspectable in docs/permissions.md",
			zap.String("key", w.key), zap.String("claim", w.claim),
			zap.String("holder", w.suspected.Holder.Owner), zap.Error(err))
		return true
	}
	return errors.Is(err, rpctypes.ErrLeaseNotFound) // the key has gone with the holder's lease
}

// Took notes that the waiter has taken the key. If the reply was lost, the holder may have
// handed it over at the last moment instead.
func (w *Accuser) Took(over *protocol.Over, fence int64) {
	if over == nil {
		return
	}
	all, s := &w.peers.inquiries, w.suspected
	all.took(w)
	all.Log.Info("key taken from a suspected holder", zap.String("key", w.key), zap.Int64("fence", fence),
		zap.String("claim", w.claim), zap.String("holder", s.Holder.Owner), zap.String("instance", s.Holder.Instance),
		zap.Int64("before", s.Holder.Fence(s.Own.ModRevision)))
}

// Leave ends the asking for the waiter.
func (w *Accuser) Leave() { w.peers.inquiries.leave(w) }

// accuses returns the holder of the key, and whether its client may be asked: the waiter is the
// first in line, and both sides have the option. A claim of another epoch is void already.
func (w *Accuser) accuses() (h protocol.Holder, ok bool) {
	if p := w.position; !w.forbidden && p.Pred == nil && !p.Behind {
		return protocol.Accuses(w.peers.inquiries.Layout, p.Own, w.epoch)
	}
	return h, false
}

// ask begins to ask the client of the holder, if it may be asked.
func (w *Accuser) ask() {
	if h, ok := w.accuses(); ok {
		w.peers.inquiries.join(w, h.Instance)
	} else {
		w.Leave()
	}
}

// suspects returns what takes the key from its holder, if it is that whose client did not answer.
func (w *Accuser) suspects(s silence) *protocol.Over {
	h, ok := w.accuses()
	if !ok || !w.asks(h.Instance) {
		return nil
	}
	all := &w.peers.inquiries
	w.suspected = protocol.Suspicion{Own: w.position.Own, Holder: h, Question: w.inquiry.key(), Rev: s.rev}
	return w.suspected.Over(all.Layout, all.Owner, fmt.Sprintf("no answer for %v", s.lasted.Round(10*time.Millisecond)))
}

// asks reports whether a client is asked for the waiter.
func (w *Accuser) asks(instance string) bool {
	return w.inquiry != nil && w.inquiry.instance == instance
}

// tell lets the waiter take its key, if its holder is the client that did not answer.
func (w *Accuser) tell(s silence) {
	select {
	case w.silent <- s:
		w.wake()
	default:
	}
}

// forget forgets a silence.
func (w *Accuser) forget() {
	select {
	case <-w.silent:
	default:
	}
}

// wake makes the waiter call Opens.
func (w *Accuser) wake() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}
