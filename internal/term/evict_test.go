package term

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// notice puts a notice that a claim was taken away, on the lease of the term's session.
func (w *world) notice(t *Term, e protocol.Eviction) *mvccpb.KeyValue {
	kv := &mvccpb.KeyValue{Key: []byte(layout.Eviction("me", e.Claim)), Value: []byte(keyspace.Encode(e)), Lease: int64(t.s.ID())}
	kv.ModRevision = w.Put(string(kv.Key), string(kv.Value), kv.Lease)
	return kv
}

// A notice ends the claim that it names, and no other. It is removed.
func TestEvicted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		change  func(e *protocol.Eviction, t *Term)
		calls   string
		removed bool
		matches error
	}{
		{"forced", func(*protocol.Eviction, *Term) {}, "lost k: deleted", true, nil},
		{"suspected", func(e *protocol.Eviction, _ *Term) { e.Suspected = true }, "lost k: superseded", true, claimerr.ErrSuspected},
		{"another claim on the key", func(e *protocol.Eviction, _ *Term) { e.Claim = "x" }, "", true, nil},
		{"another key", func(e *protocol.Eviction, _ *Term) { e.Key = "l" }, "", true, nil},
		{"being released", func(_ *protocol.Eviction, t *Term) { _ = t.begin() }, "", true, nil},
		{"of a later version", func(e *protocol.Eviction, _ *Term) { e.Version++ }, "", false, nil},
	} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{})
			e := protocol.Eviction{Version: protocol.Version, Key: "k", Claim: term.ID, By: "op", Reason: "why", Suspected: false}
			tt.change(&e, term)
			kv := w.notice(term, e)
			w.Evicted(kv)
			synctest.Wait()
			if calls := w.Take(); calls != tt.calls || term.IsLost() != (tt.calls != "") || w.has(string(kv.Key)) == tt.removed {
				t.Errorf("%s: %q, %v, the notice is there: %v", tt.name, calls, term.Err(), w.has(string(kv.Key)))
			}
			if loss := lossBy(e); tt.matches != nil && !errors.Is(loss.Err, tt.matches) || e.Suspected != errors.Is(loss.Err, claimerr.ErrSuspected) {
				t.Errorf("%s: %v", tt.name, loss.Err)
			}
		})
	}
}

// A younger notice on the same key is not removed, and a claim that is yet to be granted learns of its own.
func TestEvictedMeanwhile(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		term := w.hold(t, w.session(t), "k", Given{})
		e := protocol.Eviction{Version: protocol.Version, Key: "l", Claim: "coming", By: "op", Reason: "why"}
		w.Keys.Register("coming")
		first := w.notice(term, e)
		w.notice(term, e)
		w.Evicted(first)
		synctest.Wait()
		same(t, "the younger is there", w.has(string(first.Key)), true)
		if why, ok := w.Keys.Taken("coming", "l"); !ok || why.Reason != claimerr.Deleted || why.Err.Error() != "release forced by op: why" {
			t.Error(why, ok)
		}
	})
}
