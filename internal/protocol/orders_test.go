package protocol_test

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
)

// In whatever order things happen, an attempt ends. It has the key only if etcd has put its claim
// at that revision. If it has not, nothing of it is left once its undo is done and all requests have
// arrived: without an undo, nothing could be.
func TestOrders(t *testing.T) {
	t.Parallel()
	ends := make(map[protocol.Answer]int)
	for seed := range uint64(4000) {
		w := newWorld(t, seed)
		for range 120 {
			switch n := w.rng.IntN(20); {
			case n == 0:
				w.other()
			case n < 4:
				w.background()
			default:
				w.move(w.actors[w.rng.IntN(len(w.actors))], false)
			}
			w.look()
		}
		w.finish(seed%2 == 0)
		for _, a := range w.actors {
			ends[a.act.End]++
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s\netcd has %s", seed, strings.Join(w.story, "\n"), w.names())
		}
	}
	for _, name := range []protocol.Answer{
		protocol.AnswerWon, protocol.AnswerHeld, protocol.AnswerBehind, protocol.AnswerAgain, protocol.AnswerLater,
		protocol.AnswerLostPlace, protocol.AnswerStopped, protocol.AnswerUnsettled, protocol.AnswerFailed,
	} {
		if ends[name] < 10 {
			t.Errorf("only %d have ended with %q", ends[name], endNames[name])
		}
	}
}

// finish ends all attempts: in peace, so that each gets its turn, or by force.
func (w *world) finish(peace bool) {
	drain := func() {
		for len(w.late)+len(w.undos) > 0 {
			w.background()
		}
	}
	if peace {
		w.End('o')
		drain()
	}
	for round := 0; ; round++ {
		going := 0
		for _, a := range w.actors {
			if a.act.Do != protocol.DoEnd {
				going++
			}
			switch {
			case peace:
				w.move(a, true)
			case a.act.Do != protocol.DoEnd:
				w.cut(a)
			}
			w.look()
			drain()
		}
		if going == 0 {
			break
		}
		if round == 200 {
			w.tb.Errorf("%d do not end", going)
			return
		}
	}
	for _, a := range w.actors {
		if w.KV(a.PlaceKey()) != nil {
			w.tb.Errorf("%s stays in line", a.ID)
		}
		w.release(a)
	}
	for _, k := range w.Under("") {
		if strings.HasPrefix(k.Name, layout.Void("")) {
			continue
		}
		for _, a := range w.actors {
			beside := a.Beside != nil && k.Name == "/b" && k.Value == a.Beside.Value
			if a.act.End != protocol.AnswerWon && (k.Lease == a.Lease || beside) {
				w.tb.Errorf("%s of %s is left", k.Name, a.ID)
			}
		}
	}
}
