package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
)

// store is what a process reads and knows of a queue in etcd. Each noun of this package has
// one, and none of them knows the Queue.
type store struct {
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

	size    requestSize
	streams feed.Streams // of watches
	skipped atomic.Int64 // values that could not be read
	specOK  atomic.Bool
}

func newStore(claims *etcdclaims.Client, cfg Config) *store {
	st := &store{
		claims: claims,
		cfg:    cfg,
		log:    cfg.Logger.With(zap.String("queue", cfg.Name)),
		clock:  clock.For(claims.Etcd()),
		size:   newRequestSize(),
	}
	st.keys = item.NewKeys(claims.Prefix(), st.spec())
	st.ctx, st.stop = context.WithCancelCause(context.Background())
	return st
}

// errClosed ends what waits when the queue is closed.
var errClosed = errtext.Namesake("this Queue is closed", etcdclaims.ErrClosed)

// now reads the wall clock: for what is stored, shown, or compared with what is stored.
func (q *store) now() time.Time { return q.clock.Time() }

// fail names the operation and the queue in an error.
func (q *store) fail(operation string, err error) error {
	if err == nil {
		return nil
	}
	return errtext.Wrap(fmt.Sprintf("%s: queue %q", operation, q.cfg.Name), txn.Denied(q.explain(err)))
}

// spawn runs f in the background, where Close waits for it. It returns false if Close
// does not wait for anything new any more: then f does not run.
func (q *store) spawn(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.stopped {
		q.wg.Go(f)
	}
	return !q.stopped
}

// closed returns why nothing can be begun any more, or nil.
func (q *store) closed() error {
	if q.ctx.Err() != nil {
		return errClosed
	}
	return nil
}

// explain adds to an error of a request why etcd does not answer, as far as the client knows.
func (q *store) explain(err error) error {
	return attach.Of(q.claims).Explain(txn.Explain(q.claims.Etcd(), err))
}

// read carries out operations that change nothing.
func (q *store) read(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return retry.Read(ctx, core.Of(q.claims).KV(), requestTimeout, ops...)
}

// answer is read for the operations of a step.
func (q *store) answer(ctx context.Context, reads []*pb.RequestOp) (*pb.TxnResponse, error) {
	resp, err := q.read(ctx, txn.OpsOf(reads)...)
	return (*pb.TxnResponse)(resp), err
}

// page reads a range by one request.
func (q *store) page(ctx context.Context, op clientv3.Op) (*pb.RangeResponse, error) {
	resp, err := q.read(ctx, op)
	if err != nil {
		return nil, err
	}
	return (*pb.RangeResponse)(txn.Read(resp, 0)), nil
}

// await has the client's report of an outage name the queue until done is called.
func (q *store) await() (done func()) { return attach.Of(q.claims).Await("queue " + q.cfg.Name) }

// requestTimeout bounds a read.
const requestTimeout = 5 * time.Second

// pageSize is how many entries a listing reads at once.
const pageSize = 100

// patience is how long a call tries again while etcd does not answer, if its caller is
// better served by an error.
const patience = 2 * requestTimeout

// list reads the pages of a range, of at most most keys each.
func list(ctx context.Context, claims *etcdclaims.Client, op clientv3.Op, most int64) iter.Seq2[retry.Page, error] {
	return retry.List(ctx, core.Of(claims).KV(), requestTimeout, op, most, most)
}

// readAll carries out any number of operations that change nothing, with as many
// requests as they need. The answers may be of several revisions.
func (q *store) readAll(ctx context.Context, ops txn.Ops) (txn.Reply, error) {
	var all clientv3.TxnResponse
	for len(ops) > 0 {
		n := min(len(ops), q.size.MaxOps())
		resp, err := q.read(ctx, ops[:n]...)
		switch {
		case err == nil:
			all.Responses, ops = append(all.Responses, resp.Responses...), ops[n:]
		case !q.size.refused(err, n):
			return txn.Reply{}, err
		}
	}
	return txn.ReplyIn(&all), nil
}

// get reads a range of keys.
func get(ctx context.Context, claims *etcdclaims.Client, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return retry.Get(ctx, core.Of(claims).KV(), requestTimeout, clientv3.OpGet(key, opts...))
}

// anyOf reads one key with a prefix.
func anyOf(prefix string) clientv3.Op {
	return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
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

// skip counts a value that cannot be read, and logs some of them: each look finds
// them again.
func (q *store) skip(err error) {
	if n := q.skipped.Add(1); n <= 10 || n%1000 == 0 {
		q.log.Warn("skipped a value", zap.Error(err), zap.Int64("skipped", n))
	}
}

func (q *store) skipAll(unreadable []error) {
	for _, err := range unreadable {
		q.skip(err)
	}
}

// openWatch opens a watch that ends if etcd does not answer in time.
func (q *store) openWatch(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.WatchChan, context.CancelFunc) {
	return q.streams.Open(ctx, q.claims.Etcd(), requestTimeout, key, opts...)
}
