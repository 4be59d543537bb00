package txn

import (
	"testing"
	"time"
)

// What follows from how long round trips took: when one is late, and whether so many calls that
// wait get a second one beside one that carries one call, or many.
func TestPace(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	all := func(n int, took time.Duration) (trips []time.Duration) {
		for range n {
			trips = append(trips, took)
		}
		return trips
	}
	for name, tt := range map[string]struct {
		trips []time.Duration
		late  time.Duration
		few   [2]bool // beside one call: 2 calls that wait, manyCalls
		many  [2]bool // beside many calls: manyCalls that wait, more than longQueue
	}{
		"nothing known":        {nil, slow, [2]bool{false, true}, [2]bool{false, true}},
		"near":                 {all(50, ms), slow, [2]bool{false, true}, [2]bool{false, true}},
		"near and busy":        {append(all(1, ms), all(90, 20*ms)...), 40 * ms, [2]bool{false, true}, [2]bool{false, true}},
		"busy for long":        {append(append(all(900, 20*ms), ms), all(90, 20*ms)...), 40 * ms, [2]bool{false, true}, [2]bool{false, true}},
		"near, and stuck once": {append(all(50, ms), 4*time.Second), 64 * ms, [2]bool{false, true}, [2]bool{false, true}},
		"distant":              {all(50, 30*ms), slow, [2]bool{true, true}, [2]bool{true, true}},
		"has become distant":   {append(all(50, ms), all(800, 30*ms)...), slow, [2]bool{true, true}, [2]bool{true, true}},
	} {
		var p pace
		now := time.Now()
		for _, took := range tt.trips {
			sent := now
			now = now.Add(took)
			p.answered(sent, now)
		}
		if late := p.late(); late.Round(8*ms) != tt.late.Round(8*ms) {
			t.Errorf("%s: late after %v, want %v", name, late, tt.late)
		}
		if few := [2]bool{p.second(1, 2), p.second(1, manyCalls)}; few != tt.few {
			t.Errorf("%s: beside one call: %v, want %v", name, few, tt.few)
		}
		if many := [2]bool{p.second(100, manyCalls), p.second(100, longQueue+1)}; many != tt.many {
			t.Errorf("%s: beside many calls: %v, want %v", name, many, tt.many)
		}
		if !p.second(0, 1) {
			t.Errorf("%s: no round trip beside a late one", name)
		}
	}
}
