package etcdclaims

import (
	"context"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/suspicion"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Suspectable lets the first caller in line take the key from a holder whose client
// does not answer, in about half a second instead of the TTL. Both must have the option.
// Use it only if each effect of the claim is fenced.
//
// Claim.Check of a suspectable claim can still succeed while the next owner already
// works, until its deadline: only the fence refuses the effects of the old owner.
//
// When a caller with the option has been first in line for 200 ms, its client begins to
// ask the holder's client through etcd, 20 times a second. That client answers. This costs
// etcd 40 writes a second for each such pair of clients, whatever the number of keys. A
// standby for a leader waits for ever, and so costs that for ever. Where many clients wait
// for each other they ask less often: 20 clients cost at most 100 requests a second together,
// and a death is noticed after up to 2.5 s. Without a caller in line it costs nothing.
//
// If 450 ms pass without an answer, although etcd answers every request of the asking client,
// the first in line takes the key. The fence rises, and the old claim is lost with
// ReasonSuperseded and ErrSuspected as soon as its client learns of that. If the round trip
// of either client to etcd is longer than 150 ms, that takes three round trips, up to 3.6 s. Until
// the holder's client has answered once, it takes 1.5 s.
//
// A suspicion is wrong if the process was only paused for so long, if its watch hangs
// with its member of etcd, or if its way to etcd suddenly becomes three times as long.
// The process then loses one term of each key that a caller waits
// for. The client that was wrong doubles the time that it gives that process, up to 3.6 s,
// and halves it each minute. After an outage of etcd it waits 3 s for the next answer.
// Stats.SuspectedWrongly counts wrong suspicions. docs/protocol.md lists them all.
//
// Suspectable excludes Slots, Shared, Manual, MinHold, If and Then: a claim whose reply was
// lost may have been taken before its client reads it back. A key that stays held
// for a handler that outlived its drain is not suspected. A passthrough client ignores the
// option.
func Suspectable() AcquireOption {
	return acquireOption{setter: func(o *acquireOptions) { o.give(optionSuspectable, true) }}
}

// shortcut is another reason for the first in line to advance than the end of what it waits for.
// The goroutine that waits calls it.
type shortcut interface {
	// Begin notes that the wait begins, or continues at another position, until the returned
	// function is called.
	Begin(p protocol.Position, epoch int64) (end func())
	// News receives a value when Opens may return something else than before.
	News() <-chan struct{}
	// Opens returns what the attempt may take the key from now, or nil.
	Opens() *protocol.Over
	// Saw learns of an event of what the attempt waits for.
	Saw(ev *clientv3.Event)
	// Failed reports whether the attempt continues to wait after an error of the request that
	// should have taken the key so. Took learns that it has. over is nil for other requests.
	Failed(over *protocol.Over, err error) bool
	Took(over *protocol.Over, fence int64)
	Leave()
}

// shortcut returns the shortcut that the call has asked for.
func (a *attempt) shortcut() shortcut {
	if !a.opts.given.has(optionSuspectable) {
		return noShortcut{}
	}
	return a.s.c.peers.Accuser(questionLease{a.s}, a.user, a.ID)
}

type noShortcut struct{}

func (noShortcut) Begin(protocol.Position, int64) (end func()) { return func() {} }
func (noShortcut) News() <-chan struct{}                       { return nil }
func (noShortcut) Opens() *protocol.Over                       { return nil }
func (noShortcut) Saw(*clientv3.Event)                         {}
func (noShortcut) Failed(*protocol.Over, error) bool           { return false }
func (noShortcut) Took(*protocol.Over, int64)                  {}
func (noShortcut) Leave()                                      {}

// newPeers returns those whom the client asks whether they live, and who ask it.
func (c *Client) newPeers() *suspicion.Peers {
	return suspicion.New(suspicion.Config{
		Layout: c.store.Layout, Owner: c.cfg.Owner, Log: c.log, Etcd: c.store, IO: c.io, Open: c.open,
		Spawn: func(f func()) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.io.Err() == nil {
				c.spawn(f)
			}
		},
		Restored: c.outage.EndedWithin, Judged: c.events.judged,
	})
}

// questionLease is a session whose lease has questions.
type questionLease struct{ *session }

func (l questionLease) ID() int64   { return int64(l.id) }
func (l questionLease) Ended() bool { return l.ended() }
func (l questionLease) CleanUp(what string, do func(context.Context) error) {
	l.c.cleanUp(l.session, what, do)
}

// missedNews notes that the watch has not delivered what concerns the term. If others may suspect
// its holder, the watch may be deaf for their questions, too: it begins anew.
func (t *term) missedNews() {
	if t.given.has(optionSuspectable) {
		t.s.c.store.Generation.Advance()
	}
}
