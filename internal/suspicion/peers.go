// Package suspicion decides when the first in line may take a key from a holder that does not
// answer. It knows nothing of calls and sessions.
//
// A client asks another whether it lives by putting a key under that client's own prefix. The
// other client watches that prefix for notices, and answers by deleting the key.
// docs/protocol.md has why that is sound.
//
// What decides is pure, and reads no clock: patience.go has the times, standing.go what the
// replies to a question mean, and pending.go which questions are answered when. The other files
// send requests: inquiries put the questions, for Accusers, which wait, and answers answer those
// of other clients.
package suspicion

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Config is what a client provides for its Peers.
type Config struct {
	Layout protocol.Layout
	Owner  string // the client's label
	Log    *zap.Logger
	Etcd   Requests

	IO   context.Context // of all requests
	Open context.Context // ends before IO, when the client is being closed: nothing is asked any more

	// Spawn runs a function on a goroutine of the client, unless IO has ended.
	Spawn func(f func())
	// Restored reports whether etcd did not answer within so long, and does again.
	Restored func(within time.Duration) bool
	// Judged is called with each suspicion of a client, from which so many claims were taken,
	// when it is known whether it was wrong.
	Judged func(instance string, claims int, wrong bool)
}

// Requests sends requests to etcd. It is a *txn.Batcher.
type Requests interface {
	Do(ctx context.Context, r txn.Request) (*clientv3.TxnResponse, error)
	Send(ctx context.Context, r txn.Request) (*clientv3.TxnResponse, error)
	MaxOps() int
	FewerOps(refused int)
}

// Lease is one of the client, on which questions are put.
type Lease interface {
	ID() clientv3.LeaseID
	Ended() bool
	// CleanUp does what must happen in etcd before the lease ends, in the background.
	CleanUp(what string, do func(context.Context) error)
}

// Peers are the other clients that a client asks whether they live, and those that ask it.
type Peers struct {
	inquiries inquiries
	answers   answers
}

// New returns the peers of a client. It sends nothing before an Accuser waits, or a question
// has come.
func New(cfg Config) *Peers {
	return &Peers{
		inquiries: inquiries{
			Config: cfg, of: make(map[string]*inquiry), wrong: make(map[string]wrongs), wake: make(chan struct{}, 1),
		},
		answers: answers{
			Config: cfg, news: make(chan struct{}, 1),
			pending: pending{standing: make(map[string]*question), asked: make(map[string]time.Time)},
		},
	}
}

// Counts returns how many claims were taken from holders that did not answer, and from how many
// of them wrongly, as far as known.
func (p *Peers) Counts() (taken, wrongly int64) {
	return p.inquiries.takenInAll.Load(), p.inquiries.takenWrongly.Load()
}

// Heard deals with an event of a question whether this client lives.
func (p *Peers) Heard(ev *clientv3.Event) {
	if ev.Type == mvccpb.Event_PUT {
		p.Answer(ev.Kv)
	} else {
		p.answers.gone(string(ev.Kv.Key))
	}
}

// Answer answers a question whether this client lives, in the background: it deletes the
// question. It does so whatever the client holds, until IO ends.
func (p *Peers) Answer(kv *mvccpb.KeyValue) { p.answers.answer(kv) }

// counters is how many claims were taken.
type counters struct{ takenInAll, takenWrongly atomic.Int64 }
