package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Queue is a process's access to a queue. It is safe for concurrent use. End it with Close.
// Close of the client does that, too.
type Queue struct {
	*holder
	quota   quota
	claimer claimer
	keeper  *keeper
	ranks   atomic.Pointer[[]string] // that visible items had when Stats was called last
}

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
	given := cfg.TTL
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := passthrough.Refuse(claims); err != nil {
		return nil, errtext.Wrap(fmt.Sprintf("queue %q", cfg.Name), err)
	}
	if given != 0 { // that of Open need not suit a client that only reads
		if err := core.Of(claims).CheckTTL(given); err != nil {
			return nil, fmt.Errorf("queue %q: %w", cfg.Name, err)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = attach.Logger(claims, zap.NewNop)
	}
	q := &Queue{}
	q.holder = newHolder(newStore(claims, cfg), q.claimer.tidy)
	q.keeper = newKeeper(q.holder)
	l := listener{claimer: &q.claimer, keeper: q.keeper}
	q.claimer.init(q.holder, &q.keeper.keeping, l.listen, q.keeper.watchDeaths, q.keeper.keep)
	q.quota.reserve = cfg.SpaceReserve
	return q, nil
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

// Open returns access to a queue that exists. It is for programs that do not know the
// order and the bounds of the queue, such as tools. Open takes these from etcd, as the
// first process stored them. The other fields of Config have their defaults. To set them,
// read [Queue.Config], change the fields, and call [New]. Open sends one request, which
// changes nothing.
//
// Errors: ErrNotFound if no process ever called Enqueue or Claim on a queue of this
// name, etcdclaims.ErrInvalidKey if no queue can have the name, and those of reading
// from etcd.
func Open(ctx context.Context, claims *etcdclaims.Client, name string) (*Queue, error) {
	cfg, err := storedConfig(ctx, claims, name)
	if err != nil {
		return nil, err
	}
	return New(claims, cfg)
}

// storedConfig returns the stored part of the configuration of a queue.
func storedConfig(ctx context.Context, claims *etcdclaims.Client, name string) (Config, error) {
	q, err := newUnattached(claims, Config{Name: name}) // it only reads
	if err != nil {
		return Config{}, err
	}
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.Spec()), q.anyEntry())
	if err != nil {
		return Config{}, q.fail("open", err)
	}
	have, there, _, err := known(txn.Kvs(resp, 0), txn.Kvs(resp, 1))
	switch {
	case err != nil:
	case !there:
		err = errNoQueue
	case have.Name != name:
		err = fmt.Errorf("value of %q is of the queue %q", q.keys.Spec(), have.Name)
	}
	if err != nil {
		return Config{}, q.fail("open", err)
	}
	return configOf(have), nil
}

// Config returns the configuration of this access to the queue, with defaults filled in.
func (q *Queue) Config() Config { return q.cfg }

// Names yields the names of all queues under the client's prefix, in no particular order.
// A queue that is empty now is included. Names reads two keys for each queue, and a few
// more; [Active] reads less. It leaves out queues that a newer version of this package
// made. An error ends the iteration.
func Names(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := passthrough.Refuse(claims); err != nil {
			yield("", err)
			return
		}
		specOf := func(root string) clientv3.Op { return clientv3.OpGet(item.SpecBelow(root)) }
		for kv, err := range retry.Subtrees(ctx, core.Of(claims).KV(), requestTimeout, claims.Prefix()+"queue/", specOf) {
			if err != nil {
				yield("", errtext.Wrap("list the queues", txn.Denied(err)))
				return
			}
			if s, err := item.Decode[spec](kv.Key, kv.Value); err == nil && !yield(s.Name, nil) {
				return
			}
		}
	}
}

// Delivery returns this Queue's delivery of an item, and whether it has one, as far as this
// process knows. It sends no request. Adopted deliveries are left out until Heartbeat has
// moved them to this process. See Delivery.Check and Delivery.Token.
func (q *Queue) Delivery(id string) (*Delivery, bool) {
	q.sessions.mu.Lock()
	defer q.sessions.mu.Unlock()
	for s := range q.sessions.all {
		if l, ok := s.leaseOf(id).(*Delivery); ok {
			return l, true
		}
	}
	return nil, false
}

// Sweep recovers the items of dead workers now, and returns how many it made visible or
// put among the dead letters. Processes that claim do that by themselves, so Sweep is for
// programs that do not claim, and for operators. It recovers items whose session has
// ended in etcd. It does not end a session. Several processes may call Sweep at the same
// time.
//
// After an error some items have been recovered. While etcd does not answer, Sweep fails
// within half a minute, even if ctx lasts longer. Errors: ErrConfig, and those of
// etcdclaims.Client.TryAcquire.
func (q *Queue) Sweep(ctx context.Context) (n int, err error) {
	if err := q.closed(); err != nil {
		return 0, q.fail("sweep", err)
	}
	for try, begun := 0, clock.Mono(); ; try++ {
		s, err := q.sessions.live(ctx)
		if err != nil {
			return n, q.fail("sweep", err)
		}
		_, some, err := q.recoverDead(ctx, s)
		n += some
		if some > 0 {
			begun = clock.Mono()
		}
		if !tryAgain(ctx, err, begun, try) {
			return n, q.fail("sweep", err)
		}
	}
}

// tryAgain reports whether to repeat a request that failed, of those that do no harm when they
// are carried out twice, and waits before. It gives up patience after the last success.
func tryAgain(ctx context.Context, err error, success time.Time, try int) bool {
	return err != nil && (errors.Is(err, etcdclaims.ErrLost) || passing(err)) && time.Since(success) < patience && retry.Pause(ctx, try)
}

// Reconfigure makes the order and the bounds of this Config those of the queue: HigherFirst,
// Aging, MaxTaken, MaxWaiting and KeyLimit. It is for a queue that all processes have closed. A process
// that has not, and has claimed or enqueued before, may continue with the earlier configuration. Calling
// Reconfigure again is safe.
//
// The error matches ErrInUse, and nothing was changed, while a process has a session in the
// queue, or a worker has an item. It also does if HigherFirst or Aging changes while the queue has items
// or dead letters: the order is part of their keys. It does, too, if KeyLimit falls while an item has a turn of
// its partition key: complete or cancel these items first. It matches ErrNotFound if there is no queue, and
// etcdclaims.ErrUnknown if the reply was lost: call again.
func (q *Queue) Reconfigure(ctx context.Context) error {
	act := q.act(ctx, audit.Reconfigure, "", "")
	return q.fail("reconfigure", act.End(ctx, q.reconfigure(ctx, act)))
}

func (q *Queue) reconfigure(ctx context.Context, act *audit.Act) error {
	want, key := q.spec(), q.keys.Spec()
	resp, err := q.read(ctx, clientv3.OpGet(key))
	if err != nil {
		return err
	}
	kvs := txn.Kvs(resp, 0)
	have, there, _, err := known(kvs, nil)
	switch {
	case err != nil:
		return err
	case !there:
		return errNoQueue
	case have != want:
		unused := []string{q.keys.Workers(), q.keys.Taken()}
		if have.HigherFirst != want.HigherFirst || have.Aging != want.Aging {
			unused = append(unused, q.keys.Ready(), q.keys.Later(), q.keys.Behind(), q.keys.Dead())
		}
		if have.LaneLimit() > want.LaneLimit() {
			unused = append(unused, q.keys.Lanes())
		}
		cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision)}
		for _, prefix := range unused {
			cmps = append(cmps, absent(prefix).WithPrefix())
		}
		limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
		defer cancel()
		done, err := core.Of(q.claims).KV().Txn(limited).If(cmps...).
			Then(append(act.Ops(), clientv3.OpPut(key, item.Encode(want)))...).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return txn.Outcome(ctx, txn.Unanswered(ctx, err))
		}
		// etcd's client may have sent the request twice, and this is the answer to the second.
		if !done.Succeeded {
			now, _, _, err := known(txn.Kvs(done, 0), nil)
			if err != nil || now != want {
				return fmt.Errorf("%w: %s", ErrInUse, against(have, want))
			}
		}
	}
	q.specOK.Store(true)
	return nil
}
