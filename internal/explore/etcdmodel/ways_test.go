package etcdmodel_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/fault"
	"github.com/etcdclaims/claims/internal/explore/items"
	"github.com/etcdclaims/claims/internal/explore/partitions"
	"github.com/etcdclaims/claims/internal/explore/search"
	"github.com/etcdclaims/claims/internal/explore/story"
	"github.com/etcdclaims/claims/internal/explore/ticks"
	"github.com/etcdclaims/claims/internal/explore/world"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/tick"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// scope returns a scope of claims whose operations are recorded.
func scope(name string) *world.Scope {
	all := world.Scopes()
	s := all[slices.IndexFunc(all, func(s world.Scope) bool { return s.Name == name })]
	s.Recorded = true
	return &s
}

// Random ways in all worlds lead a real etcd to the same replies as the model.
func TestWaysOnEtcd(t *testing.T) {
	t.Parallel()
	for i, name := range []string{
		"exclusive: 2 wait, other faults", "slots: 2 wait, two faults", "shared: 2 wait twice", "exclusive: 2 try, etcd restored",
	} {
		wander(t, uint64(i), world.New(scope(name)))
	}
	for i, s := range partitions.Scopes()[3:7] {
		s.Recorded = true
		wander(t, uint64(i), partitions.New(&s))
	}
	for i, s := range items.Scopes()[3:8] {
		s.Recorded = true
		wander(t, uint64(i), items.Start(s))
	}
	for i, s := range ticks.Scopes()[:4] {
		s.Recorded = true
		wander(t, uint64(i), ticks.New(s)[0])
	}
}

// wander goes some random ways from a state, and does to a real etcd what they have done to the model of it.
func wander[S story.World[S]](t *testing.T, seed uint64, from S) {
	t.Helper()
	for n := range uint64(3) {
		rng := rand.New(rand.NewPCG(n, seed))
		w := from
		for range 80 {
			events := w.Events()
			if len(events) == 0 {
				break
			}
			next, err := events[rng.IntN(len(events))].Do()
			if err != nil {
				t.Fatal(err)
			}
			w = next
		}
		carryOut(t, w.Etcd().History())
	}
}

// A test that is written of a violation, in any world, does to a real etcd what has led to it.
func TestViolationsOnEtcd(t *testing.T) {
	t.Parallel()
	s := scope("exclusive: 2 try, two faults")
	s.Drop = &world.Condition{Step: "Take", On: "own/k create equal"}
	violates(t, "the claim of A1 was ended by the Take of another", func(recorded bool) []world.World {
		s.Recorded = recorded
		return []world.World{world.New(s)}
	})
	violates(t, "believe that they own partition 0", func(recorded bool) []partitions.World {
		return []partitions.World{partitions.New(&partitions.Scope{
			Members: 2, Partitions: 1, Grain: partitions.AtOnce, Faults: partitions.One(partitions.Revocation), Recorded: recorded,
			Wrong: partitions.Wrong{Overrun: true},
		})}
	})
	violates(t, "complete of a was carried out for a session that is over", func(recorded bool) []items.State {
		return []items.State{items.Start(&items.Scope{
			Items: 1, Max: 2, Batch: 1, Budget: items.Once(items.Expiry), Recorded: recorded,
			Change: func(_ string, in *pb.TxnRequest) *pb.TxnRequest { return unconditional(in) },
		})}
	})
	violates(t, "tick 1 was given up in attempt 1 of 2", func(recorded bool) []ticks.State {
		return ticks.New(ticks.Scope{Ticks: 1, Ends: 1, Again: true, Recorded: recorded, Settles: func(s *tick.Settle) { s.Job.Again = false }})
	})
}

// unconditional is a request without its conditions.
func unconditional(in *pb.TxnRequest) *pb.TxnRequest {
	return fault.Without(in, func(*pb.Compare) bool { return true })
}

// violates searches a world for a violation, and shows that its way has the same end on a real etcd.
func violates[S story.World[S]](t *testing.T, want string, start func(recorded bool) []S) {
	t.Helper()
	r := search.Run(start(false), search.Options{Most: 100_000})
	if r.Bad == nil || !strings.Contains(r.Bad.Error(), want) {
		t.Fatalf("%v; want %q", r.Bad, want)
	}
	operations, _, err := story.Trace(start(true), r.Bad.Way)
	if !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("the way of %v leads to %v", r.Bad, err)
	}
	carryOut(t, operations)
	if source := story.Source(&story.Scope{Name: "n"}, r.Bad); !strings.Contains(source, fmt.Sprintf("%#v", r.Bad.Way)) {
		t.Errorf("the test is %s", source)
	}
}

// replay goes a way in a scope, and does to a real etcd what was done to the model of it. It fails with the
// violation, or because the two differ. Tests that are written of violations call it.
func replay(t *testing.T, name string, way []int) {
	t.Helper()
	s, err := story.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	operations, told, bad := s.Trace(way)
	carryOut(t, operations)
	if bad != nil {
		t.Error(&search.Violation{Err: bad, Story: told})
	}
}

// Each scope can be found by the name in a test that is written of it.
func TestReplayOfAnyScope(t *testing.T) {
	t.Parallel()
	for _, s := range story.Scopes() {
		found, err := story.Find(s.String())
		if err != nil || found.String() != s.String() {
			t.Errorf("%v: %v", &s, err)
		}
	}
	replay(t, story.Scopes()[0].String(), []int{0})
}

// carryOut does to a real etcd what was done to the model. It fails if the two differ.
func carryOut(t *testing.T, operations []etcdmodel.Operation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conn := testetcd.StartVirtual(t).Client(t).ActiveConnection()
		kv, leases := pb.NewKVClient(conn), pb.NewLeaseClient(conn)
		for i, op := range operations {
			var err error
			reply := &pb.TxnResponse{}
			switch {
			case op.Granted != 0:
				_, err = leases.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{ID: op.Granted, TTL: 1000})
			case op.Revoked != 0:
				_, err = leases.LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: op.Revoked})
			default:
				reply, err = kv.Txn(t.Context(), proto.CloneOf(op.Txn))
			}
			if err != nil || op.Reply != nil && (reply.Header.Revision != op.Reply.Header.Revision || !equal(reply, op.Reply)) {
				t.Fatalf("operation %d, %v: etcd answers %v %v, the model %v", i+1, op.Txn, reply, err, op.Reply)
			}
		}
	})
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
