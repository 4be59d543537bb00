package acquire

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func noHooks(int) context.Context { return nil }

// twice carries out the first transaction twice. In between a key is removed.
func (w *world) twice(key string) func(*pb.TxnRequest) error {
	first := true
	return func(in *pb.TxnRequest) error {
		if first {
			first = false
			w.Etcd.With(func(m *memetcd.Model) {
				m.Do(in)
				m.Remove(layout.Own(key))
			})
		}
		return nil
	}
}

// All keys are claimed by one request, or none is, whatever becomes of that.
func TestAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		do      func(w *world)
		call    func(o *Call)
		outcome string
		sent    string
		keys    string // at the end
	}{
		{name: "free", outcome: "won", sent: "take", keys: "own/a:1 own/b:1 own/c:1"},
		{
			name: "one is held", do: func(w *world) { w.Other(layout.Own("b"), "x") },
			outcome: "b: held by x", sent: "take", keys: "own/b:1",
		},
		{
			name: "a caller in line for one", do: func(w *world) { w.Other(layout.Place("c", "x"), "x") },
			outcome: "c: 1 in line", sent: "take", keys: "wait:1",
		},
		{
			name:    "condition does not hold",
			call:    func(o *Call) { o.If = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("/q"), ">", 0)} },
			outcome: "unmet", sent: "take",
		},
		{
			name: "request lost", do: func(w *world) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) },
			outcome: "won", sent: "take, read or void, take", keys: "own/a:1 own/b:1 own/c:1 void:1",
		},
		{
			name: "reply lost", do: func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) },
			outcome: "won", sent: "take, read or void", keys: "own/a:1 own/b:1 own/c:1 void:1",
		},
		{
			name: "no leader for a moment", do: func(w *world) { w.Answer(testlayers.Once(rpctypes.ErrNoLeader), nil) },
			outcome: "won", sent: "take, take", keys: "own/a:1 own/b:1 own/c:1",
		},
		{
			name: "epoch raised", do: func(w *world) { w.Put(layout.Epoch(), "1", 0) },
			outcome: "won", sent: "take, take", keys: "epoch:1 own/a:1 own/b:1 own/c:1",
		},
		{
			name: "carried out twice, and one was taken away in between", do: func(w *world) { w.Answer(w.twice("a"), nil) },
			call:    func(o *Call) { o.Then = []clientv3.Op{clientv3.OpDelete("/q")} },
			outcome: "unknown",
		},
		{
			name: "etcd away after it has carried that out", do: func(w *world) {
				w.Answer(nil, testlayers.Always(txn.ErrNoAnswer))
				time.AfterFunc(2*time.Second, func() { w.Answer(nil, nil) })
			},
			outcome: "unknown", keys: "void:1",
		},
		{
			name: "closed meanwhile", do: func(w *world) {
				w.Answer(nil, func(*pb.TxnRequest) error { w.Life.Refuse(); return nil })
			},
			outcome: "closed",
		},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Open(t)
			if tt.do != nil {
				tt.do(w)
			}
			o := exclusive("")
			if tt.call != nil {
				tt.call(o)
			}
			terms, err := w.All(t.Context(), []string{"a", "b", "c"}, o, noHooks)
			same(t, "outcome", outcome(err), tt.outcome)
			same(t, "terms", len(terms) == 3, tt.outcome == "won")
			if sent := w.Steps(); tt.sent != "" {
				same(t, "sent", sent, tt.sent)
			}
			for i, held := range terms {
				same(t, "owner", w.Owner([]string{"a", "b", "c"}[i]).Claim, held.ID)
				same(t, "one id", held.ID, terms[0].ID)
			}
			pass(5 * time.Second)
			same(t, "keys", w.keys(), tt.keys)
			if !strings.Contains(tt.sent, "void") && tt.outcome != "unknown" {
				w.balanced(t)
			}
		})
	}
}

// Keys that are claimed together are in one session, and their places in one that has no room for all are given back.
func TestAllInOneSession(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		full := w.Open(t)
		const taken = 8190 // of 8192
		full.ReserveMore(taken)
		terms, err := w.All(t.Context(), []string{"a", "b", "c"}, exclusive(""), noHooks)
		same(t, "outcome", outcome(err), "won")
		for _, held := range terms {
			same(t, "session", held.Session(), terms[0].Session())
			same(t, "has room", held.Session() != full, true)
		}
		for range taken {
			full.Unreserve()
		}
		pass(time.Second)
		same(t, "the other is given up", full.Ended(), true)
	})
}

// A call that is refused leaves no place behind: the session ends when it is not needed.
func TestAllGivesPlacesBack(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		w.Other(layout.Own("b"), "x")
		_, err := w.All(t.Context(), []string{"a", "b"}, exclusive(""), noHooks)
		same(t, "outcome", outcome(err), "b: held by x")
		same(t, "attempts", w.Attempts.Load(), 2)
		same(t, "contended", w.Contended.Load(), 1)
		pass(3 * ttl)
		same(t, "sessions", len(w.Pool.Live()), 0)
	})
}
