package etcdclaims_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// doorman is what stands between clients and etcd and lets those pass whose
// token is that of the tenant whose keys they change.
type doorman struct {
	mu      sync.Mutex
	strange []string // what came with a token of somebody else's, or without one
	carried map[string]int
	most    int // keys of one tenant in one request
}

func (d *doorman) option() claimtest.Option {
	return claimtest.Tweak(func(cfg *embed.Config) {
		cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(d.check))
	})
}

func (d *doorman) check(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	txn, ok := req.(*pb.TxnRequest)
	if !ok {
		return next(ctx, req)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	token := strings.Join(md.Get("token"), ",")
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, tenant := range puts(txn) {
		n++
		if tenant != token {
			d.strange = append(d.strange, tenant+" with the token "+token)
		}
		d.carried[tenant]++
	}
	d.most = max(d.most, n)
	if token == "forbidden" && n > 0 {
		return nil, rpctypes.ErrGRPCPermissionDenied
	}
	return next(ctx, req)
}

// puts returns the tenants of the claims that a transaction puts, where it can:
// the first parts of their keys.
func puts(txn *pb.TxnRequest) (tenants []string) {
	for _, op := range append(append([]*pb.RequestOp{}, txn.Success...), txn.Failure...) {
		if inner := op.GetRequestTxn(); inner != nil {
			tenants = append(tenants, puts(inner)...)
			continue
		}
		if key, ok := strings.CutPrefix(string(op.GetRequestPut().GetKey()), "/p/own/"); ok {
			tenant, _, _ := strings.Cut(key, "/")
			tenants = append(tenants, strings.TrimSuffix(tenant, "-none"))
		}
	}
	return tenants
}

func as(token string) context.Context {
	if token == "" {
		return context.Background()
	}
	return metadata.AppendToOutgoingContext(context.Background(), "token", token)
}

// Callers share round trips with those alone whose metadata is the same, and it
// is sent along.
func TestMetadataIsNotShared(t *testing.T) {
	t.Parallel()
	d := &doorman{carried: map[string]int{}}
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "-none/warm"))
		far(host)
		tenants := []string{"alice", "bob", ""}
		before := len(host.Sent(claimtest.Acquire))
		const n = 300
		errs, last := atOnce(n, func(i int) error {
			tenant := tenants[i%3]
			ctx, prefix := as(tenant), tenant+"/"
			if tenant == "" {
				prefix = "-none/"
			}
			switch i % 4 {
			case 0:
				_, errs := c.TryAcquireEach(ctx, []string{prefix + key(i), prefix + key(1000+i)})
				return errors.Join(errs...)
			case 1:
				cl, err := c.TryAcquire(ctx, prefix+key(i))
				if err != nil {
					return err
				}
				return cl.Release(ctx)
			case 2:
				_, err := c.Acquire(ctx, prefix+key(i))
				return err
			}
			wk, err := works(c).TryBegin(ctx, prefix+key(i))
			if err != nil {
				return err
			}
			return wk.Complete(ctx)
		})
		noErr(t, errors.Join(errs...))
		if len(d.strange) > 0 {
			t.Errorf("%d of them, such as %s", len(d.strange), d.strange[0])
		}
		if trips := len(host.Sent(claimtest.Acquire)) - before; trips == 0 || trips > 30 || d.most < 20 {
			t.Errorf("%d round trips, %d together at most: those with equal metadata share", trips, d.most)
		}
		if last > 20*rtt {
			t.Errorf("took %v", last)
		}
		host.RemoveFaults()
		_, err := c.ReleaseAll(context.Background())
		noErr(t, err)
	}, d.option())
}

// A refusal of one caller's token is no answer to others that want the same key.
func TestRefusalOfATokenIsNotShared(t *testing.T) {
	t.Parallel()
	d := &doorman{carried: map[string]int{}}
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		release(t, tryClaim(t, c, "-none/warm"))
		held := tryClaim(t, w.peer(), "-none/k")
		far(host)
		errs, _ := atOnce(100, func(i int) error {
			if i%2 == 0 {
				_, err := c.TryAcquire(as("forbidden"), "-none/k")
				return err
			}
			_, err := c.TryAcquire(context.Background(), "-none/k")
			return err
		})
		for i, err := range errs {
			if want := [...]error{rpctypes.ErrPermissionDenied, etcdclaims.ErrHeld}[i%2]; !errors.Is(err, want) {
				t.Fatalf("caller %d: %v, want %v", i, err, want)
			}
		}
		time.Sleep(sec)
		release(t, held)
	}, d.option())
}
