package fencetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/etcdclaims/claims/fencing"
)

// admission is one call of Admit. Its times order it with the others of its
// history: it happened at some instant between the two.
type admission struct {
	fence      int64
	begun, end int64
	err        error
	unsure     bool // it may have been admitted before that, too
}

func (s *trial) concurrentAdmits() {
	const perKey, callers, calls = 12, 8, 12
	var now atomic.Int64 // a clock that tells before from after
	var mu sync.Mutex
	histories := map[string][]admission{}
	gates := s.processes()
	for _, key := range []string{"a", "b"} {
		ts := s.tokens(key, perKey)
		if s.Issue != nil {
			// To be issued is to be admitted: the last one's mark is there from the
			// beginning.
			histories[key] = append(histories[key], admission{fence: ts[len(ts)-1].Fence, begun: -2, end: -1})
		}
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for call := range calls {
					// Rising, so that neither all are refused nor all admitted.
					at := min(call*perKey/calls+rand.IntN(3), perKey-1)
					a := admission{fence: ts[max(at-caller%2, 0)].Fence, begun: now.Add(1)}
					a.err = s.settled(func(ctx context.Context) error {
						err := gates[caller%len(gates)].Admit(ctx, fencing.Token{Key: key, Fence: a.fence})
						a.unsure = a.unsure || errors.Is(err, fencing.ErrUnknown)
						return known(err)
					})
					a.end = now.Add(1)
					mu.Lock()
					histories[key] = append(histories[key], a)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	for key, history := range histories {
		for _, fault := range faults(history) {
			s.Errorf("key %q: %s", key, fault)
		}
	}
}

// faults says what in the history no gate could have answered that judges one
// call after the other, each at an instant between its begin and its end. What
// was admitted, or was told to stand against another, is known to be remembered
// at the latest when that call ended: whatever begins later and passes must not
// be lower. And what stood against one must have been asked for before that ended.
func faults(history []admission) []string {
	var found []string
	known := func(a admission) int64 { // what is remembered once a has ended
		var stale *fencing.StaleError
		switch {
		case a.err == nil:
			return a.fence
		case errors.As(a.err, &stale):
			return max(stale.Newest, a.fence+1)
		}
		return 0
	}
	byEnd := slices.SortedFunc(slices.Values(history), func(a, b admission) int { return cmp.Compare(a.end, b.end) })
	byBegin := slices.SortedFunc(slices.Values(history), func(a, b admission) int { return cmp.Compare(a.begun, b.begun) })
	floor, i := int64(0), 0
	for _, a := range byBegin {
		for ; i < len(byEnd) && byEnd[i].end < a.begun; i++ {
			floor = max(floor, known(byEnd[i]))
		}
		if a.err == nil && a.fence < floor {
			found = append(found, fmt.Sprintf("fence %d passes after %d", a.fence, floor))
		}
		var stale *fencing.StaleError
		if errors.As(a.err, &stale) && stale.Newest != 0 && stale.Newest < floor {
			found = append(found, fmt.Sprintf("fence %d is told that %d is the newest, after %d", a.fence, stale.Newest, floor))
		}
	}
	for _, a := range history {
		if !errors.Is(a.err, fencing.ErrStale) {
			continue
		}
		var stale *fencing.StaleError
		errors.As(a.err, &stale)
		if !slices.ContainsFunc(history, func(b admission) bool {
			return b.begun < a.end && b.fence > a.fence && (b.unsure || !errors.Is(b.err, fencing.ErrStale)) &&
				(stale == nil || stale.Newest == 0 || stale.Newest == b.fence)
		}) {
			found = append(found, fmt.Sprintf("fence %d is refused before any greater one came: %v", a.fence, a.err))
		}
	}
	return found
}
