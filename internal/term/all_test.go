package term

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ReleaseAll frees all keys, but those that rest, or are lost. When the client is being closed, all claims have ended
// before anything is sent.
func TestReleaseAll(t *testing.T) {
	t.Parallel()
	for _, closing := range []bool{false, true} {
		in(t, func(t *testing.T, w *world) {
			s := w.session(t)
			var terms []*Term
			for i := range 50 {
				terms = append(terms, w.hold(t, s, fmt.Sprint(i), Given{}))
			}
			rests := w.hold(t, s, "rests", Given{MinHold: time.Minute})
			w.hold(t, s, "gone", Given{})
			leaving := w.hold(t, s, "leaving", Given{})
			w.Remove(layout.Own("gone"))
			if err := leaving.begin(); err != nil {
				t.Fatal(err)
			}
			first := true
			w.Answer(func(*pb.TxnRequest) error {
				if first {
					first = false
					for _, term := range append(terms, rests) {
						if term.Check() == nil || closing && !term.IsLost() {
							t.Errorf("%s is still held when the first request is sent", term.Key)
						}
					}
				}
				return nil
			}, nil)
			n, err := w.ReleaseAll(t.Context(), closing)
			if n != len(terms)+1 || err != nil {
				t.Errorf("closing %v: %d released, %v", closing, n, err)
			}
			for _, term := range terms {
				if w.has(layout.Own(term.Key)) || term.IsLost() != closing {
					t.Errorf("closing %v: %s: %v", closing, term.Key, term.Err())
				}
			}
			calls := w.Take()
			same(t, "ended", strings.Count(calls, "ended "), map[bool]int{false: 51, true: 0}[closing])
			same(t, "lost", strings.Count(calls, "lost "), map[bool]int{false: 1, true: 52}[closing]) // that was gone
			same(t, "owner of the key with a MinHold", w.owner("rests"), protocol.KindResting)
			same(t, "owner of the key that is given up otherwise", w.owner("leaving"), leaving.ID)
			same(t, "phase", leaving.life.phase, phaseEnding)
		})
	}
}

// What cannot be confirmed is released in the background, and counts.
func TestReleaseAllNotAnswered(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.session(t)
		for i := range 3 {
			w.hold(t, s, fmt.Sprint(i), Given{})
		}
		w.Answer(func(*pb.TxnRequest) error { return txn.ErrNoAnswer }, nil)
		n, err := w.ReleaseAll(t.Context(), false)
		if n != 3 || err == nil || !strings.Contains(err.Error(), "3 of 3 claims are released in the background") || s.Size() != 0 {
			t.Errorf("%d, %v", n, err)
		}
		w.Answer(nil, nil)
		pass(3 * time.Second)
		for i := range 3 {
			same(t, fmt.Sprint(i), w.owner(fmt.Sprint(i)), "")
		}
	})
}
