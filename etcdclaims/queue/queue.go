package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

// Queue is a process's access to a queue. It is safe for concurrent use. End it with Close.
// Close of the client does that, too.
type Queue struct {
	claims *etcdclaims.Client
	cfg    Config
	keys   item.Keys
	log    *zap.Logger
	clock  clock.Clock

	ctx     context.Context // of what runs in the background
	stop    context.CancelCauseFunc
	wg      sync.WaitGroup
	mu      sync.Mutex // stopped
	stopped bool
	closing atomic.Bool
	ended   chan struct{} // closed at the end of Close
	why     error         // of Close
	forget  func()        // of the client; see attach

	size     requestSize
	quota    quota
	claimer  claimer
	sessions sessions
	retained retention // of tombstones
	noted    retention // of notes of adopted leases
	ranks    ranks
	keeping  atomic.Bool   // this process is the keeper
	vesting  chan struct{} // capacity 1: an item was put that vests before vests
	vests    atomic.Int64  // when the keeper moves items next, in Unix nanoseconds
	died     chan struct{} // capacity 1: a session has ended
	streams  feed.Streams  // of watches
	skipped  atomic.Int64  // values that could not be read
	specOK   atomic.Bool
}

// errClosed ends what waits when the queue is closed.
var errClosed = errtext.Namesake("this Queue is closed", etcdclaims.ErrClosed)

// New returns access to a queue. It sends no request: the first Enqueue or Claim of any
// process makes the queue. Open is for a queue that exists, and whose order and bounds
// the caller does not know. A queue needs etcd: for a passthrough client New returns
// etcdclaims.ErrPassthrough, for a nil client etcdclaims.ErrNoClient, and for a closed one
// etcdclaims.ErrClosed.
func New(claims *etcdclaims.Client, cfg Config) (*Queue, error) {
	q, err := newUnattached(claims, cfg)
	if err != nil {
		return nil, err
	}
	q.attach()
	if q.closed() != nil {
		return nil, errtext.Wrap(fmt.Sprintf("queue %q", cfg.Name), etcdclaims.ErrClosed)
	}
	return q, nil
}

// newUnattached is New for a queue that whoever makes it closes, in any case. Close of the
// client does not end it: it ends its maker.
func newUnattached(claims *etcdclaims.Client, cfg Config) (*Queue, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := passthrough.Refuse(claims); err != nil {
		return nil, errtext.Wrap(fmt.Sprintf("queue %q", cfg.Name), err)
	}
	if cfg.Logger == nil {
		cfg.Logger = attach.Logger(claims, zap.NewNop)
	}
	q := &Queue{
		claims: claims,
		cfg:    cfg,
		keys:   item.NewKeys(claims.Prefix(), cfg.Name, cfg.HigherFirst),
		size:   newRequestSize(),
		clock:  clock.For(claims.Etcd()),
		forget: func() {},
	}
	q.log = cfg.Logger.With(zap.String("queue", cfg.Name))
	q.ctx, q.stop = context.WithCancelCause(context.Background())
	q.quota.reserve = cfg.SpaceReserve
	q.claimer.init(q)
	q.sessions.init(q)
	q.retained.init(cfg.Retention)
	q.noted.init(noteFor)
	q.vesting, q.died, q.ended = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	return q, nil
}

// attach has Close of the client close the queue. A queue that was dropped before anything
// ran in the background may be collected.
func (q *Queue) attach() {
	dropped := weak.Make(q)
	q.forget = attach.Of(q.claims).OnClose(func(ctx context.Context) {
		if q := dropped.Value(); q != nil {
			_ = q.end(ctx) // the keeper of the queue finds what is left
		}
	})
	runtime.AddCleanup(q, func(forget func()) { forget() }, q.forget)
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.cfg.Name }

// Close makes all waiting calls return, ends the leases of all items that this Queue has,
// and gives the items back. The items are visible again, and their attempts do not count.
// The contexts of handlers end with a cause that matches etcdclaims.ErrClosed.
// Close takes at most fifteen seconds, also if ctx has ended. It is idempotent: each call returns
// when the items are given back.
func (q *Queue) Close(ctx context.Context) error {
	defer q.forget()
	return q.end(ctx)
}

func (q *Queue) end(ctx context.Context) error {
	if q.closing.CompareAndSwap(false, true) {
		q.stop(errClosed)
		q.why = q.sessions.close(ctx)
		q.mu.Lock()
		q.stopped = true
		q.mu.Unlock()
		q.wg.Wait()
		close(q.ended)
	}
	<-q.ended
	return q.why
}

// await has the client's report of an outage name the queue until done is called.
func (q *Queue) await() (done func()) { return attach.Of(q.claims).Await("queue " + q.cfg.Name) }

// spawn runs f in the background, where Close waits for it. It returns false if Close
// does not wait for anything new any more: then f does not run.
func (q *Queue) spawn(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.stopped {
		q.wg.Go(f)
	}
	return !q.stopped
}

// closed returns why nothing can be begun any more, or nil.
func (q *Queue) closed() error {
	if q.ctx.Err() != nil {
		return errClosed
	}
	return nil
}

// now reads the wall clock: for what is stored, shown, or compared with what is stored.
func (q *Queue) now() time.Time { return q.clock.Time() }

// fail names the operation and the queue in an error.
func (q *Queue) fail(operation string, err error) error {
	if err == nil {
		return nil
	}
	return errtext.Wrap(fmt.Sprintf("%s: queue %q", operation, q.cfg.Name), txn.Denied(q.explain(err)))
}

// explain adds to an error of a request why etcd does not answer, as far as the client knows.
func (q *Queue) explain(err error) error {
	return attach.Of(q.claims).Explain(txn.Explain(q.claims.Etcd(), err))
}

// requestTimeout bounds a read.
const requestTimeout = 5 * time.Second

// patience is how long a call tries again while etcd does not answer, if its caller is
// better served by an error.
const patience = 2 * requestTimeout

// read carries out operations that change nothing.
func (q *Queue) read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return retry.Read(ctx, core.Of(q.claims).KV(), requestTimeout, ops...)
}

// answer is read for the operations of a step.
func (q *Queue) answer(ctx context.Context, reads []*pb.RequestOp) (*pb.TxnResponse, error) {
	resp, err := q.read(ctx, txn.OpsOf(reads)...)
	return (*pb.TxnResponse)(resp), err
}

// page reads a range by one request.
func (q *Queue) page(ctx context.Context, op clientv3.Op) (*pb.RangeResponse, error) {
	resp, err := q.read(ctx, op)
	if err != nil {
		return nil, err
	}
	return (*pb.RangeResponse)(txn.Read(resp, 0)), nil
}

// list reads the pages of a range, of at most most keys each.
func list(ctx context.Context, claims *etcdclaims.Client, op clientv3.Op, most int64) iter.Seq2[retry.Page, error] {
	return retry.List(ctx, core.Of(claims).KV(), requestTimeout, op, most, most)
}

// get reads a range of keys.
func get(ctx context.Context, claims *etcdclaims.Client, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return retry.Get(ctx, core.Of(claims).KV(), requestTimeout, clientv3.OpGet(key, opts...))
}

// absent is the condition that a key does not exist.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// unmoved is the condition that a key is as it was put at a revision.
func unmoved(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "=", rev)
}

// passing reports whether a request that changed nothing is worth another try.
func passing(err error) bool {
	if errors.Is(err, etcdclaims.ErrUnknown) {
		return true
	}
	if errors.Is(err, etcdclaims.ErrClosed) || errors.Is(err, etcdclaims.ErrRewound) || errors.Is(err, etcdclaims.ErrTooLarge) {
		return false
	}
	return txn.MayPass(err) || txn.Code(err) == codes.Canceled
}
