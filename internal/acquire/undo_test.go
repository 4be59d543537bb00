package acquire

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// putAll puts in etcd what an attempt puts.
func (a *Attempt) putAll(w *world) {
	in := protocol.Take{Try: &a.Try}.Build().In
	for _, op := range in.Success {
		if put := op.GetRequestPut(); put != nil {
			w.Put(string(put.Key), string(put.Value), put.Lease)
		}
	}
}

// An undo is sent until etcd has carried it out, or its session has ended.
func TestUndo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		do     func(w *world, a *Attempt)
		unsure bool // a request may still arrive
		sent   string
		keys   string
	}{
		{name: "carried out", do: func(*world, *Attempt) {}, sent: "delete"},
		{name: "it never arrived", do: func(w *world, _ *Attempt) {
			w.Remove(layout.Own("k"))
			w.Remove(layout.Note("k"))
		}, sent: "delete"},
		{
			name: "request lost", do: func(w *world, _ *Attempt) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) },
			sent: "delete, delete",
		},
		{
			name: "reply lost", do: func(w *world, _ *Attempt) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) }, sent: "delete, delete",
		},
		{
			name: "another's by now", do: func(w *world, _ *Attempt) { w.Other(layout.Own("k"), "x") }, sent: "delete",
			keys: "own/k:1",
		},
		{name: "may still arrive", do: func(*world, *Attempt) {}, unsure: true, sent: "delete or void", keys: "void:1"},
		{name: "may still arrive, and has not", do: func(w *world, _ *Attempt) {
			w.Remove(layout.Own("k"))
			w.Remove(layout.Note("k"))
		}, unsure: true, sent: "delete or void", keys: "void:1"},
		{name: "lease gone", do: func(w *world, a *Attempt) {
			w.Etcd.EndLease(a.S.ID())
			w.Answer(testlayers.Always(rpctypes.ErrLeaseNotFound), nil) // the void would be on it
		}, unsure: true, sent: "delete or void"},
		{name: "session dead", do: func(_ *world, a *Attempt) {
			a.S.Die(claimerr.Loss{Reason: claimerr.Expired})
		}, keys: "note/k:1 own/k:1"},
		{name: "no space", do: func(w *world, _ *Attempt) {
			w.Answer(puts(rpctypes.ErrNoSpace), nil)
			time.AfterFunc(10*time.Second, func() { w.Answer(nil, nil) })
		}, unsure: true, keys: "void:1"},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			s, o := w.Open(t), exclusive("k")
			o.Note = []byte("n")
			a := w.New(s, o.Mode, o)
			a.putAll(w)
			if tt.unsure {
				a.Step(protocol.Event{Kind: protocol.BeginTake})
				a.Step(protocol.Event{Kind: protocol.TimeUp, Err: txn.ErrNoAnswer})
			}
			tt.do(w, a)
			a.Undo()
			a.End()
			pass(5 * time.Second)
			if tt.name == "no space" {
				same(t, "deleted at once", w.keys(), "")
				pass(10 * time.Second)
			} else {
				same(t, "sent", w.Steps(), tt.sent)
			}
			same(t, "keys", w.keys(), tt.keys)
		})
	}
}

// What was put beside a claim is undone even after the end of the claim's lease, or of its own.
func TestUndoOfWhatIsBeside(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		do    func(w *world, a *Attempt)
		calls string
		want  string // what is beside
		key   string // of the claim
		dead  bool
	}{
		{"carried out", func(*world, *Attempt) {}, "settled: <nil>", "undone", "", false},
		{"it never arrived", func(w *world, _ *Attempt) {
			w.Remove(layout.Own("k"))
			w.Remove(partnerKey)
		}, "settled: <nil>", "", "", false},
		{"another's by now", func(w *world, _ *Attempt) { w.Put(partnerKey, "x", 0) }, "settled: <nil>", "x", "", false},
		{"its own lease is gone", func(w *world, a *Attempt) {
			w.Etcd.EndLease(a.Put.Lease)
			w.Put(partnerKey, a.Put.Value, 0)
		}, "settled: <nil>", "undone", "", false},
		{"session dead", func(_ *world, a *Attempt) {
			a.S.Die(claimerr.Loss{Reason: claimerr.Expired})
		}, "settled: <nil>", "undone", "", true},
		{"denied for a while", func(w *world, _ *Attempt) {
			w.Answer(testlayers.Once(rpctypes.ErrPermissionDenied), nil)
		}, "settled: etcdclaims: permission denied by etcd, settled: <nil>", "undone", "", false},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			s := w.Open(t)
			o, p := w.beside("k")
			p.lease, p.others = w.Session(t).ID(), []clientv3.LeaseID{w.Session(t).ID()}
			a := w.New(s, o.Mode, o)
			a.putAll(w)
			tt.do(w, a)
			a.Undo()
			a.End()
			pass(5 * time.Second)
			same(t, "calls", w.Take(), tt.calls)
			same(t, "beside", w.value(partnerKey), tt.want)
			same(t, "owner", w.Owner("k").Claim, tt.key)
			same(t, "dead", s.Ended(), tt.dead)
		})
	}
}

// The lease of the claim is gone, while a void of it would be put: then only what is beside is undone.
func TestUndoAfterTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.Open(t)
		o, p := w.beside("k")
		p.lease = w.Session(t).ID()
		a := w.New(s, o.Mode, o)
		a.putAll(w)
		w.Etcd.EndLease(s.ID())
		refused := false
		w.Answer(func(in *pb.TxnRequest) error {
			if len(in.Failure) > 0 && !refused {
				refused = true
				return rpctypes.ErrLeaseNotFound
			}
			return nil
		}, nil)
		a.Undo()
		a.End()
		pass(time.Second)
		same(t, "beside", w.value(partnerKey), "undone")
		same(t, "calls", w.Take(), "settled: <nil>")
		same(t, "session", s.Ended(), true)
	})
}

// A call whose key beside the claim is on a lease that is gone puts it on another.
func TestTryWithAKeyBeside(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		do      func(w *world, p *partner)
		outcome string
		sent    string
		calls   string
	}{
		{"free", func(*world, *partner) {}, "won", "take", "granted, superseded false"},
		{
			"it has changed", func(w *world, _ *partner) { w.Put(partnerKey, "x", 0) },
			"won", "take, take", "changed, granted, superseded false",
		},
		{
			"its lease is gone", func(w *world, p *partner) { w.Etcd.EndLease(p.lease) },
			"won", "take, read, take", "granted, superseded false",
		},
		{"the claim's lease is gone", func(w *world, _ *partner) {
			w.Etcd.EndLease(w.Pool.Live()[0].ID())
		}, "won", "take, take", "granted, superseded false"},
		{"request lost", func(w *world, _ *partner) {
			w.Answer(testlayers.Once(txn.ErrNoAnswer), nil)
		}, "won", "take, read or void, take, delete", "settled: <nil>, granted, superseded false"},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Open(t)
			o, p := w.beside("k")
			p.lease, p.others = w.Session(t).ID(), []clientv3.LeaseID{w.Session(t).ID()}
			tt.do(w, p)
			held, err := w.Try(t.Context(), "k", o)
			same(t, "outcome", outcome(err), tt.outcome)
			pass(time.Second)
			if sent := w.Steps(); tt.name != "request lost" { // the undo and the next attempt go at the same time
				same(t, "sent", sent, tt.sent)
				same(t, "calls", w.Take(), tt.calls)
			}
			same(t, "beside", w.value(partnerKey), held.Put.Value)
		})
	}
}
