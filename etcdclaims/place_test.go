package etcdclaims_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// A caller whose request to join the line is carried out twice does not wait behind its
// own place: it has the key when the holder releases it or dies.
func TestJoinCarriedOutTwice(t *testing.T) {
	t.Parallel()
	for i, opts := range [][]etcdclaims.AcquireOption{
		nil, {etcdclaims.Note([]byte("x"))}, {etcdclaims.Shared()}, {etcdclaims.If(clientv3.Compare(clientv3.CreateRevision("/absent"), "=", 0))},
	} {
		for _, dies := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%d, dies %v", i, dies), func(t *testing.T, w *world) {
				ctx := context.Background()
				a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
				b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				held := tryClaim(t, a, "k")
				host.Inject(claimtest.Fault{On: steps.Enqueue, Saw: func(req any) {
					_, err := pb.NewKVClient(w.Raw.ActiveConnection()).Txn(ctx, req.(*pb.TxnRequest))
					noErr(t, err)
				}})
				done := acquiring(ctx, b, "k", opts...)
				time.Sleep(2 * sec)
				if dies {
					ahost.Kill()
					w.within(17*sec, done)
					return
				}
				release(t, held)
				w.within(sec, done)
			})
		}
	}
}

// A caller whose request to join the line was carried out twice, the first time for the key, and whose reply was lost, has
// the key and leaves no place behind, which would be handed the key later.
func TestJoinCarriedOutTwiceLeavesNoPlace(t *testing.T) {
	t.Parallel()
	for i, opts := range [][]etcdclaims.AcquireOption{
		nil, {etcdclaims.Note([]byte("x"))}, {etcdclaims.If(clientv3.Compare(clientv3.CreateRevision("/absent"), "=", 0))},
	} {
		virtualCase(t, fmt.Sprint(i), func(t *testing.T, w *world) {
			ctx := context.Background()
			a, _ := w.client(etcdclaims.Config{TTL: 15 * sec})
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			held := tryClaim(t, a, "k")
			host.Inject(claimtest.Fault{On: steps.Enqueue, LoseReply: true, Code: codes.Unavailable, Saw: func(req any) {
				release(t, held)
				_, err := pb.NewKVClient(w.Raw.ActiveConnection()).Txn(ctx, req.(*pb.TxnRequest))
				noErr(t, err)
			}})
			claim := w.within(30*sec, acquiring(ctx, b, "k", opts...))
			release(t, claim)
			release(t, tryClaim(t, a, "k"))
		})
	}
}

// A waiter whose condition holds is not refused because the epoch was raised while it
// waited.
func TestEpochRaisedWhileWaitingWithIf(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b, op := w.peer(), w.peer(), w.peer()
		tryClaim(t, a, "k")
		done := acquiring(ctx, b, "k", etcdclaims.If(clientv3.Compare(clientv3.CreateRevision("/absent"), "=", 0)))
		time.Sleep(sec)
		_, err := admin.RaiseEpoch(ctx, w.Raw, w.Prefix, 0)
		noErr(t, err)
		noErr(t, admin.ForceRelease(ctx, op, "k", "restored"))
		cl := w.within(sec, done)
		if cl.Fence()>>47 != 1 {
			t.Errorf("fence %d", cl.Fence())
		}
	})
}
