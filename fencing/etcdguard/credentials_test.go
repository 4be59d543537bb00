package etcdguard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// gated starts no request of a guarded KV before open is called.
type gated struct {
	started atomic.Int32
	opened  chan struct{}
}

func newGated() *gated { return &gated{opened: make(chan struct{})} }

func (g *gated) open() { close(g.opened) }

func (g *gated) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if strings.HasSuffix(method, "/Txn") {
		g.started.Add(1)
		<-g.opened
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// wait waits until so many requests have started.
func (g *gated) wait(t *testing.T, n int32) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); g.started.Load() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d requests have started, want %d", g.started.Load(), n)
		}
	}
}

// withUsers starts an etcd in which alice writes under /alice/, bob under /bob/,
// and both use claims. It returns their tokens.
func withUsers(t *testing.T) (server *testetcd.Server, alice, bob string) {
	t.Helper()
	server = testetcd.Start(t, testetcd.NoSync())
	admin := server.Client(t)
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"root", "alice", "bob"} {
		must(admin.RoleAdd(ctx, user))
		if user != "root" {
			for _, prefix := range []string{"/etcdclaims/", "/" + user + "/"} {
				must(admin.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)))
			}
		}
		must(admin.UserAdd(ctx, user, user))
		must(admin.UserGrantRole(ctx, user, user))
	}
	must(admin.AuthEnable(ctx))
	token := func(user string) string {
		login, err := admin.Authenticate(ctx, user, user)
		must(nil, err)
		return login.Token
	}
	return server, token("alice"), token("bob")
}

// Callers of one KV come with credentials of their own, in their contexts. None
// writes with those of another, and none is refused for those of another.
func TestSharedRequestsHaveOneCredential(t *testing.T) {
	t.Parallel()
	server, alice, bob := withUsers(t)
	held := claim(t, newClient(t, server.ClientWith(t, clientv3.Config{Username: "alice", Password: "alice"}), ""), "k")

	type identity struct{}
	ways := map[string]func(token string) context.Context{
		"metadata": func(token string) context.Context {
			return metadata.AppendToOutgoingContext(t.Context(), rpctypes.TokenFieldNameGRPC, token)
		},
		"an interceptor": func(token string) context.Context { return context.WithValue(t.Context(), identity{}, token) },
	}
	type write struct {
		key, token string
		want       error
	}
	run := func(name string, as func(token string) context.Context, writes ...write) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := newGated()
			kv := etcdguard.NewKV(server.ClientWith(t, clientv3.Config{MaxUnaryRetries: 1, DialOptions: []grpc.DialOption{
				grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					if token, ok := ctx.Value(identity{}).(string); ok {
						ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
					}
					return gate.intercept(ctx, method, req, reply, cc, invoker, opts...)
				}),
			}}), held)

			var wg sync.WaitGroup
			put := func(w write) {
				wg.Go(func() {
					if _, err := kv.Put(as(w.token), w.key, ""); !errors.Is(err, w.want) {
						t.Errorf("%s: %v, want %v", w.key, err, w.want)
					}
				})
			}
			for i := range int32(2) {
				put(write{fmt.Sprint("/alice/first/", i), alice, nil})
				gate.wait(t, i+1)
			}
			for _, w := range writes { // in this order
				put(w)
				time.Sleep(50 * time.Millisecond)
			}
			gate.open()
			wg.Wait()
		})
	}
	for name, as := range ways {
		run(name+", another's key", as, write{"/alice/1", alice, nil}, write{"/alice/by-bob", bob, rpctypes.ErrPermissionDenied})
		run(name+", an expired token first", as, write{"/alice/2", "expired.1", rpctypes.ErrInvalidAuthToken}, write{"/alice/3", alice, nil})
		run(name+", an expired token last", as, write{"/bob/1", bob, nil}, write{"/bob/2", "expired.1", rpctypes.ErrInvalidAuthToken})
	}
}
