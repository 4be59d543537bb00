package acquire

import (
	"context"
	"errors"
	"strings"
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

// What a call for a key sends, how it ends, and what etcd has once all cleanups are done.
func TestTry(t *testing.T) {
	t.Parallel()
	absent := func(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }
	for _, tt := range []struct {
		name    string
		do      func(w *world)
		call    func(o *Call)
		sent    string
		outcome string
		keys    string // at the end
	}{
		{name: "free", sent: "take", outcome: "won", keys: "own/k:1"},
		{
			name: "held", do: func(w *world) { w.Other(layout.Own("k"), "x") }, sent: "take", outcome: "k: held by x",
			keys: "own/k:1",
		},
		{
			name: "a caller in line", do: func(w *world) { w.Other(layout.Place("k", "x"), "x") },
			sent: "take, read", outcome: "k: 1 in line", keys: "wait:1",
		},
		{
			name: "condition holds", call: func(o *Call) { o.If = []clientv3.Cmp{absent("/q")} },
			sent: "take", outcome: "won", keys: "own/k:1",
		},
		{
			name: "condition does not hold", do: func(w *world) { w.Put("/q", "v", 0) },
			call: func(o *Call) { o.If = []clientv3.Cmp{absent("/q")} }, sent: "take, read", outcome: "unmet", keys: ":1",
		},
		{
			name: "request lost", do: func(w *world) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) },
			sent: "take, read or void, take", outcome: "won", keys: "own/k:1 void:1",
		},
		{
			name: "reply lost", do: func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) },
			sent: "take, read or void", outcome: "won", keys: "own/k:1 void:1",
		},
		{
			name: "reply of a refusal lost", do: func(w *world) {
				w.Other(layout.Own("k"), "x")
				w.Answer(nil, testlayers.Once(txn.ErrNoAnswer))
			},
			sent: "take, read or void, take", outcome: "k: held by x", keys: "own/k:1 void:1",
		},
		{
			name: "no leader for a moment", do: func(w *world) { w.Answer(testlayers.Once(rpctypes.ErrNoLeader), nil) },
			sent: "take, take", outcome: "won", keys: "own/k:1",
		},
		{
			name: "permission denied", do: func(w *world) { w.Answer(testlayers.Once(rpctypes.ErrPermissionDenied), nil) },
			sent: "take", outcome: "denied",
		},
		{
			name: "no space", do: func(w *world) { w.Answer(puts(rpctypes.ErrNoSpace), nil) },
			sent: "take, read", outcome: rpctypes.ErrNoSpace.Error(),
		},
		{
			name: "space ran out with it", do: func(w *world) { w.Answer(nil, testlayers.Once(rpctypes.ErrNoSpace)) },
			sent: "take, read, read", outcome: "won", keys: "own/k:1",
		},
		{
			name: "lease gone", do: func(w *world) { w.Etcd.EndLease(w.Pool.Live()[0].ID()) },
			sent: "take, take", outcome: "won", keys: "own/k:1",
		},
		{
			name: "epoch raised", do: func(w *world) { w.Put(layout.Epoch(), "1", 0) },
			sent: "take, read, take", outcome: "won", keys: "epoch:1 own/k:1",
		},
		{
			name: "etcd away for longer than a call may take", do: func(w *world) {
				w.Answer(testlayers.Always(txn.ErrNoAnswer), nil)
				time.AfterFunc(2*time.Second, func() { w.Answer(nil, nil) })
			},
			outcome: "unknown", keys: "void:1",
		},
		{
			name: "etcd away after it has carried that out", do: func(w *world) {
				w.Answer(nil, testlayers.Always(txn.ErrNoAnswer))
				time.AfterFunc(2*time.Second, func() { w.Answer(nil, nil) })
			},
			outcome: "unknown", keys: "void:1",
		},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Open(t)
			if tt.do != nil {
				tt.do(w)
			}
			o := exclusive("k")
			if tt.call != nil {
				tt.call(o)
			}
			held, err := w.Try(t.Context(), "k", o)
			same(t, "outcome", outcome(err), tt.outcome)
			if sent := w.Steps(); tt.sent != "" {
				same(t, "sent", sent, tt.sent)
			}
			if held != nil {
				same(t, "owner", w.Owner("k").Claim, held.ID)
			}
			pass(5 * time.Second)
			same(t, "keys", w.keys(), tt.keys)
			if !strings.Contains(tt.sent, "void") && tt.outcome != "unknown" {
				w.balanced(t)
			}
		})
	}
}

// puts returns an answer to transactions that put a key.
func puts(err error) func(*pb.TxnRequest) error {
	return func(in *pb.TxnRequest) error {
		for _, op := range append(in.Success, in.Failure...) {
			if op.GetRequestPut() != nil {
				return err
			}
		}
		return nil
	}
}

// A caller that leaves while its request is under way does not learn the outcome. Its attempt is undone.
func TestTryOfACallerThatLeaves(t *testing.T) {
	t.Parallel()
	for name, carriedOut := range map[string]bool{"request lost": false, "reply lost": true} {
		run(t, name, func(t *testing.T, w *world) {
			w.Open(t)
			ctx, leave := context.WithCancel(t.Context())
			lose := func(*pb.TxnRequest) error {
				leave()
				return testlayers.Once(context.Canceled)(nil)
			}
			if w.Answer(lose, nil); carriedOut {
				w.Answer(nil, lose)
			}
			_, err := w.Try(ctx, "k", exclusive("k"))
			if !errors.Is(err, txn.ErrUnknown) || !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			w.Answer(nil, nil)
			pass(time.Second)
			same(t, "owner", w.Owner("k").Claim, "")
		})
	}
}

// An attempt whose session ends while it pauses stops at once.
func TestTryOnASessionThatEnds(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.Open(t)
		w.Answer(testlayers.Always(txn.ErrNoAnswer), nil)
		time.AfterFunc(300*time.Millisecond, func() {
			w.Etcd.EndLease(s.ID())
			w.Answer(nil, nil)
			s.Die(claimerr.Loss{Reason: claimerr.Revoked})
		})
		begun := time.Now()
		_, err := w.Try(t.Context(), "k", exclusive("k"))
		if d := time.Since(begun); outcome(err) != "unknown" || d != 300*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
	})
}

// A call that is given a time ends by then, by the clock, and one without it after the bound of the client.
func TestTryEndsInTime(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ until, want time.Duration }{
		{0, time.Second}, {300 * time.Millisecond, 300 * time.Millisecond},
	} {
		run(t, tt.want.String(), func(t *testing.T, w *world) {
			w.Open(t)
			w.Answer(testlayers.Always(txn.ErrNoAnswer), nil)
			o := exclusive("k")
			if tt.until > 0 {
				o.Until = time.Now().Add(tt.until)
			}
			begun := time.Now()
			_, err := w.Try(t.Context(), "k", o)
			if d := time.Since(begun); outcome(err) != "unknown" || d != tt.want {
				t.Errorf("%v after %v", err, d)
			}
		})
	}
}

// A call with Supersede takes the key from a claim of its own client, and from no other.
func TestTrySupersedes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		do      func(w *world)
		outcome string
		sent    string
		calls   string
	}{
		{"own", func(*world) {}, "won", "take", "lost k: superseded"},
		{
			"own, reply lost", func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) },
			"won", "take, read or void", "lost k: superseded",
		},
		{
			"own, request lost", func(w *world) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) },
			"won", "take, read or void, take", "lost k: superseded",
		},
		{"deleted meanwhile", func(w *world) { w.Remove(layout.Own("k")) }, "won", "take, take", "lost k: deleted"},
		{
			"another's meanwhile", func(w *world) { w.Other(layout.Own("k"), "x") },
			"k: held by x", "take", "lost k: superseded",
		},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			before := w.hold(t, exclusive("k"))
			tt.do(w)
			o := exclusive("k")
			o.Supersede = true
			held, err := w.Try(t.Context(), "k", o)
			same(t, "outcome", outcome(err), tt.outcome)
			same(t, "sent", w.Steps(), tt.sent)
			same(t, "calls", w.Take(), tt.calls)
			same(t, "the one before is lost", before.IsLost(), true)
			if held != nil {
				same(t, "owner", w.Owner("k").Claim, held.ID)
			}
		})
	}
}

// A void takes room on its lease until the lease ends, for resolved and for undone attempts.
func TestVoidsTakeRoom(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.Open(t)
		most := s.ReserveMore(1 << 20)
		for range most {
			s.Unreserve()
		}
		w.Answer(testlayers.Once(txn.ErrNoAnswer), nil)
		if _, err := w.Try(t.Context(), "k", exclusive("k")); err != nil {
			t.Fatal(err)
		}
		o := exclusive("other")
		a := w.New(s, o.Mode, o)
		a.Step(protocol.Event{Kind: protocol.BeginTake})
		a.Step(protocol.Event{Kind: protocol.TimeUp, Err: txn.ErrNoAnswer})
		a.Undo()
		a.End()
		pass(time.Second)
		same(t, "keys", w.keys(), "own/k:1 void:2")
		same(t, "room", s.ReserveMore(1<<20), most-3)
	})
}
