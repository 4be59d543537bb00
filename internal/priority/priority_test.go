package priority

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// A queue agrees with a sorted list, whatever is added, moved, dropped and taken.
func TestQueueIsSorted(t *testing.T) {
	t.Parallel()
	at := make(map[int]int) // of the elements in the queue
	less := func(a, b int) int { return cmp.Or(cmp.Compare(at[a], at[b]), cmp.Compare(a, b)) }
	q := New(func(a, b int) bool { return less(a, b) < 0 })
	for range 20_000 {
		switch item := rand.IntN(50); rand.IntN(4) {
		case 0:
			q.Drop(item)
			delete(at, item)
		case 1:
			limit, most := rand.IntN(4), rand.IntN(100)
			wanted := func(i int) bool { return at[i] < most }
			want := slices.SortedFunc(maps.Keys(at), less)
			n := 0
			for n < min(limit, len(want)) && wanted(want[n]) {
				n++
			}
			got := q.TakeWhile(limit, wanted)
			if !slices.Equal(got, want[:n]) {
				t.Fatalf("taken %v, want %v", got, want[:n])
			}
			for _, i := range got {
				delete(at, i)
			}
		default:
			at[item] = rand.IntN(100)
			q.Set(item)
		}
		first, any := q.First()
		if any != (len(at) > 0) || q.Len() != len(at) || any && first != slices.MinFunc(slices.Collect(maps.Keys(at)), less) {
			t.Fatalf("first %v, %v of %d, want %v", first, any, q.Len(), at)
		}
	}
}
