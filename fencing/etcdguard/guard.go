package etcdguard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// callTimeout is how long one guarded call may take. The caller's context and the time that
// the holder has left can end it earlier.
const callTimeout = 10 * time.Second

// staleTime is how long a refused call may take to find out the newest fence.
const staleTime = time.Second

// errNotHeld is returned within the package if the guard did not hold: nothing was
// carried out. The caller's side makes a StaleError of it, see stale.
var errNotHeld = errors.New("the guard did not hold")

// guard is the conditions of one holder. They stay the same while it holds the
// key.
type guard struct {
	holder Holder
	token  fencing.Token
	cmps   []*pb.Compare
	own    string // etcd key of the claim
	prefix string // of every etcd key of the claims
	fault  error  // why the holder cannot be used, or nil
}

func newGuard(h Holder) *guard {
	g := &guard{holder: h, token: h.Token()}
	if err := g.token.Validate(); err != nil {
		g.fault = fmt.Errorf("etcdguard: %w", err)
		return g
	}
	for _, cmp := range h.Guard() {
		g.cmps = append(g.cmps, cmp.GetCompare())
		key := string(cmp.KeyBytes())
		if prefix, found := strings.CutSuffix(key, keyspace.Own("", g.token.Key)); found && prefix != "" && g.own == "" {
			g.own, g.prefix = key, prefix // the first: a later key may have that suffix by chance
		}
	}
	if g.own == "" {
		g.fault = fmt.Errorf("etcdguard: the holder's conditions do not compare the claim on %q", g.token.Key)
	}
	return g
}

// over returns why no request needs to be sent: the guard is unusable, or its
// holder knows that it has lost its claim.
func (g *guard) over() error {
	if g.fault != nil {
		return g.fault
	}
	h, ok := g.holder.(interface{ Err() error })
	if !ok {
		return nil
	}
	err := h.Err()
	if errors.Is(err, fencing.ErrLost) {
		return fmt.Errorf("%w (%w)", &fencing.StaleError{Token: g.token}, err)
	}
	return err
}

func (g *guard) timeout() time.Duration {
	if h, ok := g.holder.(interface{ Remaining() time.Duration }); ok {
		// With no time left by the local clock, etcd decides.
		if left := h.Remaining(); left > 0 {
			return min(left, callTimeout)
		}
	}
	return callTimeout
}

// commit carries out ops under the guard, in one request that takes at most timeout. It
// returns errNotHeld if the guard did not hold.
func (g *guard) commit(ctx context.Context, kv *txn.Sender, ops []*pb.RequestOp, timeout time.Duration) (*clientv3.TxnResponse, error) {
	resp, sent, err := kv.Send(ctx, &pb.TxnRequest{Compare: g.cmps, Success: ops}, min(timeout, g.timeout()))
	switch {
	case err == nil && !resp.Succeeded:
		return nil, errNotHeld
	case err == nil:
		return resp, nil
	case classified(err): // by a guard within
	case sent && txn.MayBeDone(err):
		err = fmt.Errorf("%w: %w", fencing.ErrUnknown, err)
	case sent:
		err = refusedError{err}
	}
	return nil, g.failed(ctx, err)
}

// ask asks etcd whether the guard holds, and fails as an admission does. The
// reads make the transaction linearizable: etcd answers a transaction without
// operations from the state of a single member.
func (g *guard) ask(ctx context.Context, kv *txn.Sender) error {
	read := txn.Then(clientv3.OpGet(g.own, clientv3.WithKeysOnly())).Success
	timeout := g.timeout()
	end := time.Now().Add(timeout)
	resp, _, err := kv.Send(ctx, &pb.TxnRequest{Compare: g.cmps, Success: read, Failure: read}, timeout)
	switch {
	case err != nil:
		return g.failed(ctx, err)
	case !resp.Succeeded:
		return g.stale(ctx, kv, end)
	}
	return nil
}

// classified reports whether the error already says whether a write was carried out.
func classified(err error) bool {
	var refused refusedError
	if _, known := fencing.RefusalOf(err); known {
		return true
	}
	return errors.Is(err, ErrNotGuarded) || errors.Is(err, txn.ErrNotSent) || errors.As(err, &refused)
}

// failed returns the error of a write whose context is ctx.
func (g *guard) failed(ctx context.Context, err error) error {
	return fmt.Errorf("etcdguard: writing for %v: %w", g.token, txn.WithCause(ctx, err))
}

// refusedError is an error by which etcd reports that it changed nothing.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// stale returns the error of a guard that did not hold, by end at the latest. Only then it
// reads which fence is the newest, so that ordinary writes need not carry that read. ctx is
// the caller's own: the refusal is certain, whether or not the read is answered.
func (g *guard) stale(ctx context.Context, kv *txn.Sender, end time.Time) error {
	left := min(time.Until(end), staleTime)
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	err := &fencing.StaleError{Token: g.token}
	var reads txn.Ops
	own := reads.Add(clientv3.OpGet(g.own, clientv3.WithKeysOnly()))
	epoch := reads.Add(clientv3.OpGet(keyspace.EpochKey(g.prefix)))
	resp, _, rerr := kv.Send(ctx, txn.Then(reads...), left)
	if rerr == nil { // otherwise Newest stays 0: not known
		saw := txn.ReplyIn(resp)
		if fence := fenceOf(saw.First(own), saw.First(epoch)); fence > g.token.Fence {
			err.Newest = fence
		}
	}
	// Let the claim notice its loss now.
	if h, ok := g.holder.(interface {
		Owns(ctx context.Context) (bool, error)
	}); ok {
		_, _ = h.Owns(ctx)
	}
	if h, ok := g.holder.(interface{ Err() error }); ok && h.Err() != nil {
		return fmt.Errorf("%w (%w)", err, h.Err())
	}
	return err
}

// fenceOf returns the fence of a claim's key under an epoch, 0 if there is no
// claim.
func fenceOf(own, epoch *mvccpb.KeyValue) int64 {
	if own == nil {
		return 0
	}
	e, _ := strconv.ParseInt(string(epoch.GetValue()), 10, 64) // 0 without the key
	return keyspace.Fence(e, own.ModRevision)
}
