package term

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/claimerr"
	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// noted returns the note of a key in etcd.
func (w *world) noted(key string) (value string) {
	w.Etcd.With(func(m *memetcd.Model) { value = m.Get(layout.Note(key)).Value })
	return value
}

// What becomes of a note, by what happens on its way.
func TestSetNote(t *testing.T) {
	t.Parallel()
	const old, set = "old", "set"
	for _, tt := range []struct {
		name  string
		do    func(w *world, t *Term)
		want  error
		note  string
		calls string
	}{
		{"held", func(*world, *Term) {}, nil, set, ""},
		{"reply lost", func(w *world, _ *Term) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) }, nil, set, ""},
		{"request lost", func(w *world, _ *Term) { w.Answer(testlayers.Once(txn.ErrNoAnswer), nil) }, nil, set, ""},
		{"refused for now", func(w *world, _ *Term) { w.Answer(testlayers.Once(rpctypes.ErrNoLeader), nil) }, nil, set, ""},
		{"refused", func(w *world, _ *Term) { w.Answer(testlayers.Once(rpctypes.ErrPermissionDenied), nil) }, txn.ErrPermissionDenied, old, ""},
		{"another has written", func(w *world, _ *Term) { w.Put(layout.Note("k"), "x", 0) }, nil, set, ""},
		{"claim lost", func(w *world, _ *Term) { w.Remove(layout.Own("k")) }, claimerr.ErrLost, old, "lost k: deleted"},
		{"lease gone", func(w *world, _ *Term) { w.Answer(testlayers.Once(rpctypes.ErrLeaseNotFound), nil) }, claimerr.ErrLost, old, "lost k: lease revoked"},
		{"being released", func(_ *world, t *Term) { _ = t.begin() }, claimerr.ErrReleased, old, ""},
		{"released", func(_ *world, t *Term) { t.finish(claimerr.ErrReleased) }, claimerr.ErrReleased, old, "ended k"},
		{"lost before", func(_ *world, t *Term) { t.Lose(claimerr.Loss{Reason: claimerr.Revoked}) }, claimerr.ErrLost, old, ""},
	} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{})
			if err := term.SetNote(t.Context(), []byte(old)); err != nil {
				t.Fatal(err)
			}
			before := w.noted("k")
			tt.do(w, term)
			err := term.SetNote(t.Context(), []byte(set))
			want := protocol.NewNote(2, []byte(set))
			if tt.note == old {
				want = before
			}
			if note := w.noted("k"); !errors.Is(err, tt.want) || note != want || w.Take() != tt.calls {
				t.Errorf("%s: %v, note %s, want %s", tt.name, err, note, want)
			}
			w.Answer(nil, nil)
			pass(time.Second)
		})
	}
}

// A note that is younger is never overwritten: a request of an older one arrives late.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		term := w.hold(t, w.session(t), "k", Given{})
		var first *pb.TxnRequest
		w.Answer(func(in *pb.TxnRequest) error {
			first = in
			w.Answer(nil, nil)
			if err := term.SetNote(context.Background(), []byte("2")); err != nil {
				t.Error(err)
			}
			return txn.ErrNoAnswer
		}, nil)
		if err := term.SetNote(t.Context(), []byte("1")); err != nil {
			t.Error(err)
		}
		w.Etcd.With(func(m *memetcd.Model) { m.Do(first) })
		same(t, "note", w.noted("k"), protocol.NewNote(2, []byte("2")))
	})
}

// A call ends with its context, and with the claim. Its outcome is unknown if a request may have been carried out.
func TestNoteNotAnswered(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err     error
		unknown bool
	}{{txn.ErrNoAnswer, true}, {rpctypes.ErrNoLeader, false}} {
		in(t, func(t *testing.T, w *world) {
			term := w.hold(t, w.session(t), "k", Given{})
			w.Answer(func(*pb.TxnRequest) error { return tt.err }, nil)
			begun := time.Now()
			err := term.SetNote(t.Context(), []byte("1"))
			if err == nil || errors.Is(err, txn.ErrUnknown) != tt.unknown || time.Since(begun) > term.s.Grant().Hard {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
		})
	}
}
