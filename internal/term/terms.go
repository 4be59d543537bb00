package term

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/life"
	"github.com/etcdclaims/claims/internal/localline"
	"github.com/etcdclaims/claims/internal/outage"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/registry"
	"github.com/etcdclaims/claims/internal/store"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

// Line is the callers of a client that wait for its own claims.
type Line = localline.Line[Next, *Term]

// Queue is those that wait for one claim.
type Queue = localline.Queue[Next, *Term]

// LocalWaiter is one of them.
type LocalWaiter = localline.Waiter[Next, *Term]

// Next is an attempt that can be handed a key within its client.
type Next interface {
	Claim() *protocol.Try
	// Under has the attempt claim under an epoch.
	Under(e *txn.Epoch)
	// Handed returns what the attempt was granted at a revision.
	Handed(rev int64, line protocol.Line, trace string) Grant
	// Undo removes, in the background, all that the attempt may have put.
	Undo()
}

// Waiters are the attempts of the client that wait for a key.
type Waiters interface {
	// Of lists those of a session that wait for a key to change.
	Of(s *lease.Session) []Wait
	// NoticesSince returns the revision from which on there may be notices for those of a session. False means that
	// no caller waits.
	NoticesSince(s *lease.Session) (rev int64, ok bool)
	// Deliver gives a notice to its waiter.
	Deliver(notice *mvccpb.KeyValue)
	// QueueOf returns where those wait who follow the waiter of a claim, if it is one of the session; else nil.
	QueueOf(claim string, s *lease.Session) *Queue
	// Share wakes those that may share a claim of their own client on a key.
	Share(may func(key string) bool)
}

// Wait is what a waiter waits for.
type Wait struct {
	protocol.Wait
	// Waiter learns that the key has changed.
	Waiter interface{ Changed(what protocol.Wait) }
}

// Observer is told what happens to terms. Its methods are called without a mutex.
type Observer interface {
	// TermLost and TermEnded report the end of a term, once it has ended.
	TermLost(t *Term, why claimerr.Loss)
	TermEnded(t *Term)
	// ReleaseFailed reports that a release that no caller waited for did not come out as it should.
	ReleaseFailed(t *Term, err error)
	// Context returns the context of work under a term.
	Context(t *Term, work context.Context) context.Context
	// Trace returns what the next holder is passed on.
	Trace(t *Term) string
}

// Config is what Terms know of their client.
type Config struct {
	Store    *store.Store
	Pool     *lease.Pool
	Life     *life.Life
	Outage   *outage.Outage
	Clock    clock.Clock
	Log      *zap.Logger
	Owner    string
	Observer Observer
	Waiters  Waiters
	Uptime   func() time.Duration // of the client
	Bound    time.Duration        // of a call that does not wait for others
}

// Terms are the keys that a client holds.
type Terms struct {
	Config
	Keys  registry.Registry[*Term, claimerr.Loss]
	Local Line

	parted   partings
	Released atomic.Int64
	Losses   [claimerr.Reasons]atomic.Int64

	seed maphash.Seed // of the turns in which claims are verified
}

// New returns the terms of a client that holds nothing.
func New(cfg Config) *Terms {
	return &Terms{Config: cfg, Keys: registry.New[*Term, claimerr.Loss](), seed: maphash.MakeSeed()}
}

// CleanUp adds a cleanup that gives up a claim: its keys are no ghosts.
func (ts *Terms) CleanUp(claim string, c *lease.Cleanup) {
	ts.Keys.Register(claim)
	over := c.Over
	c.Over = func() {
		if over != nil {
			over()
		}
		ts.Keys.Unregister(claim)
	}
	ts.Pool.Add(c)
}

func (ts *Terms) countRelease(err error) {
	if err == nil || isUnknown(err) {
		ts.Released.Add(1)
	}
}

// Share returns the term in which this client holds the key, with one handle
// more, or nil.
func (ts *Terms) Share(key string) *Term { return ts.share(key, 1) }

// Shareable reports whether Share would return a term.
func (ts *Terms) Shareable(key string) bool { return ts.share(key, 0) != nil }

// share gives the term of a key so many handles more, and returns it, or nil if it is not to be shared.
func (ts *Terms) share(key string, handles int) *Term {
	t := ts.Keys.Term(key)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.shareableLocked() {
		return nil
	}
	t.life.refs += handles
	return t
}

// shareableLocked reports whether others may share the term. A term whose handlers must
// stop is not shared: no work may start under it. Nor is one that its first caller may
// still give up.
func (t *Term) shareableLocked() bool {
	return t.Put == nil && t.life.begun && t.life.phase == phaseHeld && t.work.cause == nil && t.s.Fresh()
}

func (t *Term) isOn(key string) bool { return t.Key == key }

// Begin lets others share the term, and wakes those that wait in line for its key.
func (t *Term) Begin() {
	t.mu.Lock()
	t.life.begun = true
	t.mu.Unlock()
	t.terms.Waiters.Share(t.isOn)
}

// ClearShared deletes the record of a shared key whose holders are all gone. It returns
// how many are not. Without an error and with 0, the record is not as it was: it makes
// sense to look again.
func (ts *Terms) ClearShared(ctx context.Context, key string, record *mvccpb.KeyValue) (holders int64, err error) {
	step := protocol.Clear{Layout: ts.Store.Layout, Key: key, Record: record}
	resp, err := ts.Store.Send(ctx, step.Build())
	if err != nil {
		return 0, err
	}
	return step.Judge((*pb.TxnResponse)(resp)), nil
}
