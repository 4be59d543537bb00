package world_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/world"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

// Nothing goes wrong in a selection of the scopes. `go run ./internal/explore` searches all of them.
func TestScopes(t *testing.T) {
	t.Parallel()
	for _, s := range world.Scopes() {
		if !s.IsQuick() {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := search.Run([]world.World{world.New(&s)}, search.Options{Workers: 1})
			if r.Bad != nil {
				t.Errorf("%v", r.Bad)
			} else if !r.Complete || r.States < 100 {
				t.Errorf("%d states, complete: %v", r.States, r.Complete)
			}
		})
	}
}

// Each check can fail: a step that lacks a condition is found out, by the shortest way.
func TestChecks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scope string
		drop  world.Condition
		want  string
	}{
		{"exclusive: 2 try, two faults", world.Condition{Step: "Take", N: 2}, "2 clients believe that they hold the key"},
		{"exclusive: 2 try, two faults", world.Condition{Step: "Take", N: 1}, "/p/own/k is there for A1, of which its client knows nothing"},
		{"exclusive: 2 wait", world.Condition{Step: "hand-over", N: 2}, "waits for ever"},
		{"exclusive: 2 wait twice, and write", world.Condition{Step: "Commit", N: 0}, "wrote after one with the fence"},
	} {
		r := world.Without(scope(t, tt.scope), tt.drop, search.Options{})
		if r.Bad == nil || !strings.Contains(r.Bad.Error(), tt.want) {
			t.Errorf("%s without condition %d of its %s: %v; want %q", tt.scope, tt.drop.N, tt.drop.Step, r.Bad, tt.want)
		}
	}
}

func scope(t *testing.T, name string) world.Scope {
	t.Helper()
	for _, s := range world.Scopes() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no scope %q", name)
	return world.Scope{}
}

// Random ways lead a real etcd to the same replies as the model. So does the way of any violation, as the test that
// is written of it goes.
func TestWaysOnEtcd(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"exclusive: 2 wait, other faults", "slots: 2 wait, two faults", "shared: 2 wait twice"} {
		s := scope(t, name)
		for seed := range uint64(5) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			w, way := world.New(&s), []int{0}
			for range 80 {
				events := w.Events()
				if len(events) == 0 {
					break
				}
				n := rng.IntN(len(events))
				next, err := events[n].Do()
				if err != nil {
					t.Fatal(err)
				}
				w, way = next, append(way, n)
			}
			replay(t, name, way)
		}
	}
}

// replay goes a way in a scope, and does to a real etcd what was done to the model of it. It fails with the
// violation, or because the two differ.
func replay(t *testing.T, scope string, way []int) {
	t.Helper()
	operations, story, bad := world.Trace(scope, way)
	synctest.Test(t, func(t *testing.T) {
		conn := testetcd.StartVirtual(t).Client(t).ActiveConnection()
		kv, leases := pb.NewKVClient(conn), pb.NewLeaseClient(conn)
		for i, op := range operations {
			var err error
			var reply *pb.TxnResponse
			switch {
			case op.Granted != 0:
				_, err = leases.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: op.Granted, TTL: 1000})
			case op.Revoked != 0:
				_, err = leases.LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: op.Revoked})
			default:
				reply, err = kv.Txn(t.Context(), proto.CloneOf(op.Txn))
			}
			same := err != nil || op.Reply == nil || reply.Header.Revision == op.Reply.Header.Revision && equal(reply, op.Reply)
			if !errors.Is(rpctypes.Error(err), op.Err) || !same {
				t.Fatalf("operation %d, %v: etcd answers %v %v, the model %v %v", i+1, op.Txn, reply, err, op.Reply, op.Err)
			}
		}
	})
	if bad != nil {
		t.Error(&search.Violation{Err: bad, Story: story})
	}
}

// equal compares what two replies have read, and which branches were taken.
func equal(a, b *pb.TxnResponse) bool {
	return a.Succeeded == b.Succeeded && slices.EqualFunc(a.Responses, b.Responses, func(a, b *pb.ResponseOp) bool {
		inner, got := a.GetResponseTxn(), a.GetResponseRange()
		switch {
		case inner != nil:
			return equal(inner, b.GetResponseTxn())
		case got == nil:
			return a.GetResponseDeleteRange().GetDeleted() == b.GetResponseDeleteRange().GetDeleted()
		}
		read := b.GetResponseRange()
		return got.Count == read.Count && slices.EqualFunc(got.Kvs, read.Kvs, func(a, b *mvccpb.KeyValue) bool {
			return string(a.Key) == string(b.Key) && string(a.Value) == string(b.Value) && a.Lease == b.Lease &&
				a.ModRevision == b.ModRevision && a.CreateRevision == b.CreateRevision
		})
	})
}
