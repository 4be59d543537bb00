package line

import (
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A place gets the name of an earlier one of its client, unless a request that names that one may arrive yet.
func TestNamesAreUsedAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		joins func(w *world)
		then  func(w *world, x *waiting)
		again bool
	}{
		"it was handed the key": {nil, func(w *world, x *waiting) { w.Waiters.Deliver(x.hands(`{"v":1}`)) }, true},
		"it took the key": {nil, func(w *world, _ *waiting) {
			w.Remove(layout.Own("k"))
			w.Waiters.DoubtAll()
		}, true},
		"it left": {nil, func(_ *world, x *waiting) { x.leave() }, true},
		"it left, and was not heard at first": {nil, func(w *world, x *waiting) {
			w.Answer(testlayers.Once(rpctypes.ErrNoLeader), nil)
			x.leave()
		}, false},
		"it left, and the first reply was lost": {nil, func(w *world, x *waiting) {
			w.Answer(nil, testlayers.Once(txn.ErrNoAnswer))
			x.leave()
		}, false},
		"the reply to its turn was lost": {nil, func(w *world, _ *waiting) {
			w.Answer(nil, testlayers.Once(txn.ErrNoAnswer))
			w.Remove(layout.Own("k"))
			w.Waiters.DoubtAll()
		}, false},
		"it joined by a request whose reply was lost": {
			func(w *world) { w.Answer(nil, testlayers.Once(txn.ErrNoAnswer)) }, func(_ *world, x *waiting) { x.leave() }, false,
		},
		"an operator deleted it": {nil, func(w *world, x *waiting) {
			w.Remove(x.a.PlaceKey())
			w.Waiters.DoubtAll()
		}, true},
	} {
		run(t, name, func(t *testing.T, w *world) {
			w.Open(t)
			w.Other(layout.Own("k"), "x")
			w.Keys.SetContended("k", true)
			if tt.joins != nil {
				tt.joins(w)
			}
			x := w.waits(t, exclusive("k"))
			tt.then(w, x)
			pass(10 * time.Second)
			if ends := x.ends(); ends == "waits" {
				t.Fatal("it waits")
			}
			if own := w.Keys.Term("k"); own != nil {
				w.Keys.Remove(own, "k")
			}
			w.Other(layout.Own("k"), "y")
			next := w.waits(t, exclusive("k"))
			same(t, "used again", next.a.PlaceName() == x.a.PlaceName(), tt.again)
			same(t, "places", w.places(), 1)
			next.leave()
			pass(time.Second)
			same(t, "places at the end", w.places(), 0)
		})
	}
}
