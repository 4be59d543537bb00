package etcdguard

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/wire"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Timeout bounds every guarded request, beside the caller's context and the time
// that the holder has left.
const Timeout = 10 * time.Second

// guard is a holder's conditions, which stay the same for as long as it holds.
type guard struct {
	holder Holder
	token  fencing.Token
	cmps   []clientv3.Cmp
	built  []*pb.Compare // the same
	own    string        // key of the claim
	prefix string        // of all that is the claims' own
	fault  error         // why it can guard nothing, or nil
}

func newGuard(h Holder) *guard {
	g := &guard{holder: h, token: h.Token()}
	if err := g.token.Validate(); err != nil {
		g.fault = fmt.Errorf("etcdguard: %w", err)
		return g
	}
	g.cmps = h.Held()
	for _, cmp := range g.cmps {
		g.built = append(g.built, cmp.GetCompare())
		key := string(cmp.KeyBytes())
		if prefix, found := strings.CutSuffix(key, "own/"+g.token.Key); found && prefix != "" && g.own == "" {
			g.own, g.prefix = key, prefix // others may end so by chance
		}
	}
	if g.own == "" {
		g.fault = fmt.Errorf("etcdguard: the holder's conditions say nothing of the claim on %q", g.token.Key)
	}
	return g
}

// over returns why nothing need be sent: the guard is none, or its holder knows
// that it holds nothing any more.
func (g *guard) over() error {
	if g.fault != nil {
		return g.fault
	}
	if h, ok := g.holder.(interface{ Err() error }); ok {
		return h.Err()
	}
	return nil
}

func (g *guard) timeout() time.Duration {
	if h, ok := g.holder.(interface{ Remaining() time.Duration }); ok {
		// None is left where only the wall clock says so: etcd knows better.
		if left := h.Remaining(); left > 0 {
			return min(left, Timeout)
		}
	}
	return Timeout
}

// commit carries out ops under the guard, in one request.
func (g *guard) commit(ctx context.Context, kv plainKV, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	resp, sent, err := wire.Exchange(ctx, g.timeout(), func(ctx context.Context, facts *wire.Facts) (*clientv3.TxnResponse, error) {
		txn := kv.Txn(ctx)
		if kv.direct {
			facts.If = g.built
		} else {
			txn = txn.If(g.cmps...)
		}
		return txn.Then(ops...).Commit()
	})
	switch {
	case err == nil && !resp.Succeeded:
		return nil, g.stale(ctx, kv)
	case err == nil:
		return resp, nil
	case sent && len(ops) > 0 && wire.MayBeDone(err):
		err = fmt.Errorf("%w: %w", fencing.ErrUnknown, err)
	case sent:
		err = refusedError{err}
	}
	return nil, g.failed(ctx, err)
}

// failed is the error of a write whose context is ctx.
func (g *guard) failed(ctx context.Context, err error) error {
	return fmt.Errorf("etcdguard: writing for %v: %w", g.token, wire.WithCause(ctx, err))
}

// refusedError is one by which etcd says that it did nothing.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// stale makes the error of a guard that did not hold. What stands against the
// token is asked for then, so that nothing needs to travel with every write.
func (g *guard) stale(ctx context.Context, kv plainKV) error {
	err := &fencing.StaleError{Token: g.token}
	saw, _, rerr := wire.Exchange(ctx, Timeout, func(ctx context.Context, _ *wire.Facts) (*clientv3.TxnResponse, error) {
		return kv.Txn(ctx).Then(clientv3.OpGet(g.own, clientv3.WithKeysOnly()), clientv3.OpGet(g.prefix+"epoch")).Commit()
	})
	if rerr == nil { // else it is not known, which changes nothing
		newest := fenceOf(saw.Responses[0].GetResponseRange().Kvs, saw.Responses[1].GetResponseRange().Kvs)
		if newest > g.token.Fence {
			err.Newest = newest
		}
	}
	// A claim finds out at once what etcd said of it.
	if h, ok := g.holder.(interface {
		Owns(ctx context.Context) (bool, error)
	}); ok {
		_, _ = h.Owns(ctx)
	}
	if lost := g.over(); lost != nil {
		return fmt.Errorf("%w (%w)", err, lost)
	}
	return err
}

// fenceOf is the fence of a claim's key under an epoch, 0 if there is no claim.
func fenceOf(own, epoch []*mvccpb.KeyValue) int64 {
	if len(own) == 0 {
		return 0
	}
	var e int64
	if len(epoch) > 0 {
		e, _ = strconv.ParseInt(string(epoch[0].Value), 10, 64)
	}
	return e<<epochShift + own[0].ModRevision
}
