// Package testterms has what the tests of the layers above terms have in common: the sessions and terms of a client on an
// etcd in memory.
package testterms

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/lease"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

// TTL is that of the leases.
const TTL = 30 * time.Second

// Client is the sessions and the terms of a client, and the observer of the terms.
type Client struct {
	*testlayers.Parts
	Terms *term.Terms
}

// New returns a client with such waiters.
func New(waiters term.Waiters) *Client {
	c := &Client{Parts: testlayers.New(zap.NewNop())}
	c.Attend(c.Etcd, func(kind string, in *pb.TxnRequest) string {
		if kind != memetcd.Txn {
			return ""
		}
		return step(in)
	})
	pool := lease.NewPool(lease.Config{
		Etcd: c.Client, Store: c.Store, Clock: c.Clock, Log: c.Log, Owner: "owner", Life: c.Life, Outage: c.Outage,
		Timing: func(ttl time.Duration) lease.Timing { return lease.NewTiming(ttl, 5*time.Second) },
		Verify: func(ctx context.Context, s *lease.Session, what lease.Turn) (lease.Verified, error) {
			return c.Terms.Verify(ctx, s, what)
		},
		Renewed: func(*lease.Session, lease.Renewal) {}, Began: func(int64) {},
	})
	c.Terms = term.New(term.Config{
		Store: c.Store, Pool: pool, Life: c.Life, Outage: c.Outage, Clock: c.Clock, Log: c.Log, Owner: "owner",
		Observer: c, Waiters: waiters, Uptime: c.Uptime, Bound: time.Second,
	})
	return c
}

// End ends the client.
func (c *Client) End() {
	c.Answer(nil, nil)
	for _, s := range c.Terms.Pool.Live() {
		s.Die(claimerr.Loss{Reason: claimerr.Shutdown})
	}
	c.Parts.End()
}

// TermLost notes the loss of a term, and TermEnded its end.
func (c *Client) TermLost(t *term.Term, why claimerr.Loss) {
	c.Note("lost " + t.Key + ": " + why.Reason.String())
}

// TermEnded is described at TermLost.
func (c *Client) TermEnded(t *term.Term) { c.Note("ended " + t.Key) }

// ReleaseFailed is described at term.Observer.
func (c *Client) ReleaseFailed(t *term.Term, err error) { c.Note("not released " + t.Key) }

// Context returns the context as it is.
func (c *Client) Context(_ *term.Term, work context.Context) context.Context { return work }

// Trace returns no trace.
func (c *Client) Trace(*term.Term) string { return "" }

// Session returns a session that nobody renews, with a place for a claim.
func (c *Client) Session(tb testing.TB) *lease.Session {
	tb.Helper()
	s, err := c.Terms.Pool.Session(context.Background(), TTL, true)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Open opens the session of claims. Others are reserved places in it.
func (c *Client) Open(tb testing.TB) *lease.Session {
	tb.Helper()
	s, err := c.Terms.Pool.Session(context.Background(), TTL, false)
	if err != nil {
		tb.Fatal(err)
	}
	s.Unreserve()
	synctest.Wait() // it is renewed from then on
	return s
}

// Other makes another client the holder of a key, or puts its place in line.
func (c *Client) Other(name, claim string) {
	c.Put(name, protocol.Holder{Claim: claim, Owner: "o", Instance: "other"}.Encode(), 99)
}

// Nobody is the waiters of a client without any.
type Nobody struct{}

// Of returns none.
func (Nobody) Of(*lease.Session) []term.Wait { return nil }

// NoticesSince returns false.
func (Nobody) NoticesSince(*lease.Session) (rev int64, ok bool) { return 0, false }

// Deliver does nothing.
func (Nobody) Deliver(*mvccpb.KeyValue) {}

// QueueOf returns nil.
func (Nobody) QueueOf(string, *lease.Session) *term.Queue { return nil }

// Share does nothing.
func (Nobody) Share(func(key string) bool) {}
