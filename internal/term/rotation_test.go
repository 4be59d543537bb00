package term

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/lease"
)

// Of many claims a turn verifies the youngest, those that are waited for, and a part: each of the others in one turn.
func TestPick(t *testing.T) {
	t.Parallel()
	in(t, func(t *testing.T, w *world) {
		s := w.session(t)
		var terms []*Term
		for i := range 300 {
			terms = append(terms, w.hold(t, s, fmt.Sprint(i), Given{}))
		}
		youngest, awaited := terms[299], terms[17]
		terms[0], terms[299] = youngest, terms[0] // sessions keep no order
		w.behind(awaited)
		turns := make(map[*Term]int)
		for part := range uint64(lease.Parts) {
			picked := w.pick(terms, part)
			if len(picked) < 50 || len(picked) > 150 {
				t.Errorf("part %d has %d of %d", part, len(picked), len(terms))
			}
			for _, term := range picked {
				turns[term]++
			}
		}
		for _, term := range terms {
			want := 1
			if term == youngest || term == awaited {
				want = lease.Parts
			}
			if turns[term] != want {
				t.Errorf("%s is verified in %d turns, want %d", term.Key, turns[term], want)
			}
		}
	})
}

// A part is enough until it shows that others may be lost.
func TestRotation(t *testing.T) {
	t.Parallel()
	const claims = rotateAbove + 50
	for _, tt := range []struct {
		name  string
		do    func(w *world, inPart, leftOut *Term)
		turn  lease.Turn
		finds bool // that the one that is left out is lost
	}{
		{"nothing else", func(*world, *Term, *Term) {}, lease.Turn{}, false},
		{"all are asked for", func(*world, *Term, *Term) {}, everything, true},
		{"one of the part is lost", func(w *world, in, _ *Term) { w.Remove(layout.Own(in.Key)) }, lease.Turn{}, true},
		{"the sentinel is gone", func(w *world, in, _ *Term) { w.Remove(in.s.Sentinel()) }, lease.Turn{}, true},
		{"the sentinel was put again", func(w *world, in, _ *Term) { w.Put(in.s.Sentinel(), "", int64(in.s.ID())) }, lease.Turn{}, true},
		{"another leader", func(*world, *Term, *Term) {}, lease.Turn{Origin: lease.Origin{Term: 9}}, true},
		{"a notice that cannot be read", func(w *world, in, _ *Term) {
			w.Put(layout.Eviction("me", "x"), "?", int64(in.s.ID()))
		}, lease.Turn{}, true},
		{"one of another session", func(w *world, in, _ *Term) { w.Put(layout.Eviction("me", "x"), "?", 99) }, lease.Turn{}, false},
		{"a notice of one that has ended", func(w *world, in, _ *Term) {
			w.Put(layout.Eviction("me", "x"), `{"v":1,"key":"0","claim":"x"}`, int64(in.s.ID()))
		}, lease.Turn{}, false},
		{"a notice of one of the part", func(w *world, in, _ *Term) {
			w.Put(layout.Eviction("me", in.ID), `{"v":1,"key":"`+in.Key+`","claim":"`+in.ID+`"}`, int64(in.s.ID()))
		}, lease.Turn{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in(t, func(t *testing.T, w *world) {
				s := w.session(t)
				for i := range claims {
					w.hold(t, s, fmt.Sprint(i), Given{})
				}
				notYoungest := func(part uint64) *Term {
					picked := w.pick(w.Keys.All(), part)
					return picked[slices.IndexFunc(picked, func(t *Term) bool { return t.Key != fmt.Sprint(claims-1) })]
				}
				inPart, leftOut := notYoungest(0), notYoungest(1)
				w.Remove(layout.Own(leftOut.Key))
				tt.do(w, inPart, leftOut)
				if _, err := w.Verify(t.Context(), s, tt.turn); err != nil {
					t.Error(err)
				}
				same(t, "found", leftOut.IsLost(), tt.finds)
				for part := range uint64(lease.Parts) { // one of the turns finds it in any case
					if _, err := w.Verify(t.Context(), s, lease.Turn{Part: part}); err != nil {
						t.Error(err)
					}
				}
				same(t, "found in the end", leftOut.IsLost(), true)
				pass(time.Second)
			})
		})
	}
}
