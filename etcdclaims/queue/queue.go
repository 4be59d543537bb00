package queue

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/passthrough"
	"go.uber.org/zap"
)

// Queue is a process's access to a queue. It is safe for concurrent use. End it with Close.
// Close of the client does that, too.
type Queue struct {
	*holder
	quota   quota
	claimer claimer
	keeper  *keeper
	ranks   ranks
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
