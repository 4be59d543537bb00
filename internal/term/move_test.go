package term

import (
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestSharedSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int{
		-time.Second: 1, 0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, 31 * time.Second: 31, 32 * time.Second: 32,
		33 * time.Second: 34, 63 * time.Second: 64, 64 * time.Second: 64, 65 * time.Second: 68, 1000 * time.Second: 1024,
	} {
		same(t, d.String(), sharedSeconds(d), time.Duration(want)*time.Second)
	}
	seen := make(map[time.Duration]bool)
	for d := time.Second; d < 365*24*time.Hour; d += d/100 + time.Second {
		got := sharedSeconds(d)
		if got < d || got-d > d/16+time.Second {
			t.Fatalf("%v: %v", d, got)
		}
		seen[got] = true
	}
	if len(seen) > 400 {
		t.Errorf("%d leases for keys of a year", len(seen))
	}
}

// What a reply to a move means, also if a request before it may have been carried out.
func TestMoveOutcome(t *testing.T) {
	t.Parallel()
	reply := func(succeeded bool, kvs ...string) *clientv3.TxnResponse {
		got := &pb.RangeResponse{}
		for _, value := range kvs {
			got.Kvs = append(got.Kvs, &mvccpb.KeyValue{Value: []byte(value)})
		}
		return &clientv3.TxnResponse{Succeeded: succeeded, Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{ResponseRange: got}}}}
	}
	for _, tt := range []struct {
		name         string
		unsure       bool
		resp         *clientv3.TxnResponse
		err          error
		want         error
		lease        clientv3.LeaseID
		unsureBefore bool // the next try
	}{
		{name: "moved", resp: reply(true), lease: 7},
		{name: "moved by a request before", unsure: true, resp: reply(false, "mine"), lease: 7, unsureBefore: true},
		{name: "moved, and over", unsure: true, resp: reply(false), lease: 7, unsureBefore: true},
		{name: "gone", resp: reply(false), want: claimerr.ErrLost, lease: 7},
		{name: "another's", unsure: true, resp: reply(false, "other"), want: claimerr.ErrLost, lease: 7, unsureBefore: true},
		{name: "not known", err: txn.ErrUnknown, want: txn.ErrUnknown, lease: 7, unsureBefore: true},
		{name: "not carried out", err: rpctypes.ErrNoLeader, want: rpctypes.ErrNoLeader, lease: 7},
		{name: "its lease lapsed meanwhile", err: rpctypes.ErrLeaseNotFound, want: rpctypes.ErrLeaseNotFound},
	} {
		in(t, func(t *testing.T, w *world) {
			m := w.hold(t, w.session(t), "k", Given{}).move(protocol.KindResting, 0)
			m.value, m.lease, m.unsure = "mine", 7, tt.unsure
			err := m.outcome(tt.resp, tt.err)
			if !errors.Is(err, tt.want) || m.lease != tt.lease || m.unsure != tt.unsureBefore {
				t.Errorf("%s: %v, lease %d, unsure %v", tt.name, err, m.lease, m.unsure)
			}
		})
	}
}

// A key rests for what is left of its MinHold, by the clocks that cannot be stepped: with no holder, on a lease of its own.
func TestRest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		do      func(w *world, s *Term)
		returns string
		key     string
		later   string // who has it after a while
		calls   string
	}{
		{"etcd answers", func(*world, *Term) {}, "nil", protocol.KindResting, protocol.KindResting, "ended k"},
		{"reply lost", func(w *world, _ *Term) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) }, "nil", protocol.KindResting, protocol.KindResting, "ended k"},
		{"lost meanwhile", func(w *world, _ *Term) { w.Remove(layout.Own("k")) }, "lost", "", "", "lost k: superseded"},
		{"slept for it", func(w *world, _ *Term) { w.Slept.Store(int64(10 * time.Second)) }, "nil", "", "", "ended k"},
	} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{MinHold: 10 * time.Second})
			tt.do(w, term)
			returns := verdict(term.Release(t.Context()))
			if who := w.owner("k"); returns != tt.returns || who != tt.key || w.Take() != tt.calls {
				t.Errorf("%s: %s, owner %q", tt.name, returns, who)
			}
			pass(time.Second)
			same(t, tt.name, w.owner("k"), tt.later)
			same(t, tt.name+": check", verdict(term.Check()) != "nil", true)
		})
	}
}

// A zombie's key is moved in the background, for as long as that takes: its claim is lost at once.
func TestZombie(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		term := w.hold(t, w.session(t), "k", Given{})
		w.Answer(func(*pb.TxnRequest) error { return rpctypes.ErrNoLeader }, nil)
		if !term.BeginZombie(claimerr.Loss{Reason: claimerr.Outlived}) {
			t.Fatal("not begun")
		}
		term.Zombie(claimerr.Loss{Reason: claimerr.Outlived})
		same(t, "calls", w.Take(), "lost k: its handler outlived its context")
		pass(3 * time.Second)
		same(t, "owner", w.owner("k"), term.ID)
		same(t, "no ghost", w.Keys.IsUnderWay(term.ID), true)
		w.Answer(nil, nil)
		pass(3 * time.Second)
		same(t, "owner", w.owner("k"), protocol.KindZombie)
		same(t, "under way", w.Keys.IsUnderWay(term.ID), false)
		lease := w.leaseOf("k")
		if lease == int64(term.s.ID()) || !w.Etcd.Lives(clientv3.LeaseID(lease)) {
			t.Errorf("on lease %d", lease)
		}
	})
}
