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

// admission is one call of Admit. It took effect at some instant between begun
// and end, which order it with the other admissions of its history.
type admission struct {
	fence      int64
	begun, end int64
	err        error
	unsure     bool // an earlier attempt of the call may have been admitted
}

func (s *trial) concurrentAdmits() {
	const perKey, callers, calls = 12, 8, 12
	var now atomic.Int64 // a logical clock
	var mu sync.Mutex
	histories := map[string][]admission{}
	gates := s.processes()
	for _, key := range []string{"a", "b"} {
		ts := s.tokens(key, perKey)
		if s.Issue != nil {
			// An issued token counts as admitted, so the last mark exists from the start.
			histories[key] = append(histories[key], admission{fence: ts[len(ts)-1].Fence, begun: -2, end: -1})
		}
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for call := range calls {
					// Rising fences, so that some are refused and some admitted.
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

// faults returns why no gate that judges the calls one after another, each at an
// instant between its begin and its end, could have given these answers.
//
// A fence that was admitted, or that was reported as the newest, is remembered at
// the latest when that call ended. So no later call may be admitted with a lower
// fence. And a fence that was reported as the newest must have been submitted
// before that call ended.
func faults(history []admission) []string {
	var found []string
	known := func(a admission) int64 { // the least fence remembered once a has ended
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
			found = append(found, fmt.Sprintf("fence %d is admitted after fence %d", a.fence, floor))
		}
		var stale *fencing.StaleError
		if errors.As(a.err, &stale) && stale.Newest != 0 && stale.Newest < floor {
			found = append(found, fmt.Sprintf("fence %d is refused with the newest fence %d, but %d was admitted before",
				a.fence, stale.Newest, floor))
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
			found = append(found, fmt.Sprintf("fence %d is refused before any greater fence was submitted: %v", a.fence, a.err))
		}
	}
	return found
}
