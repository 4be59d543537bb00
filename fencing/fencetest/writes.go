package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/fencing"
)

func (s *trial) needsWrites() {
	s.Helper()
	if s.Write == nil {
		s.Skip("this gate is apart from any effect: it is an early reject only")
	}
}

func (s *trial) staleWrites() {
	s.needsWrites()
	ts := s.tokens("k", 2)
	must := func(t fencing.Token, effect string) {
		s.Helper()
		if err := s.write(t, effect); err != nil {
			s.Errorf("%v may not write: %v", t, err)
		}
	}
	must(ts[1], "one")
	s.stale(s.write(ts[0], "late"), ts[0], ts[1].Fence)
	must(ts[1], "two")
	s.effects("k", "one", "two")

	newer := s.next("k")
	s.admits(s.Gate, newer) // seals: nothing is written under it yet
	s.stale(s.write(ts[1], "late"), ts[1], newer.Fence)
	for _, invalid := range []fencing.Token{{}, {Key: "k"}, {Key: "k", Fence: -1}} {
		if err := s.Write(s.Context(), invalid, "nobody's"); !errors.Is(err, fencing.ErrNoToken) && !errors.Is(err, fencing.ErrMalformed) {
			s.Errorf("%v writes: %v", invalid, err)
		}
	}
	must(newer, "three")
	s.effects("k", "one", "two", "three")
}

// concurrentWrites has owners of three keys write concurrently while newer owners
// take over. In the end, every write that succeeded has its effect exactly once.
// No write that was refused has one. No effect comes after an effect of a newer
// owner.
func (s *trial) concurrentWrites() {
	s.needsWrites()
	const perKey, writers, writes = 6, 3, 4
	names := []string{"a", "b", "c"}
	type outcome struct {
		effect string
		err    error
	}
	var mu sync.Mutex
	all := map[string][]outcome{}
	var wg sync.WaitGroup
	for _, key := range names {
		wg.Go(func() {
			for n := range perKey {
				t := s.next(key)
				// The next owner takes over while this one is writing.
				begun := make(chan struct{}, writers*writes)
				for w := range writers {
					wg.Go(func() {
						for i := range writes {
							effect := fmt.Sprintf("%d:%d.%d.%d", t.Fence, n, w, i)
							err := s.write(t, effect)
							begun <- struct{}{}
							mu.Lock()
							all[key] = append(all[key], outcome{effect, err})
							mu.Unlock()
						}
					})
				}
				<-begun
			}
		})
	}
	wg.Wait()
	for _, key := range names {
		got, err := s.Effects(s.Context(), key)
		if err != nil {
			s.Fatal(err)
		}
		count := map[string]int{}
		var last int64
		for _, effect := range got {
			count[effect]++
			text, _, _ := strings.Cut(effect, ":")
			fence, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				s.Fatalf("%q is not an effect of this test", effect)
			}
			if fence < last {
				s.Errorf("key %q: %q came after an effect under fence %d", key, effect, last)
			}
			last = max(last, fence)
		}
		for _, o := range all[key] {
			switch n := count[o.effect]; {
			case o.err == nil && n != 1, errors.Is(o.err, fencing.ErrUnknown) && n > 1:
				s.Errorf("key %q: effect %q exists %d times (error %v)", key, o.effect, n, o.err)
			case o.err != nil && !errors.Is(o.err, fencing.ErrUnknown) && n > 0:
				s.Errorf("key %q: effect %q exists, though the write was refused: %v", key, o.effect, o.err)
			}
		}
	}
}

func (s *trial) crash() {
	s.needsWrites()
	if s.Crash == nil {
		s.Skip("nothing can come between the admission and the effect")
	}
	for i := range rounds {
		key := "k" + strconv.Itoa(rand.IntN(3))
		ts := s.tokens(key, 3)
		before, err := s.Effects(s.Context(), key)
		if err != nil {
			s.Fatal(err)
		}
		if i%2 == 0 && s.Issue == nil {
			if err := s.write(ts[0], ts[0].String()); err != nil {
				s.Errorf("%v may not write: %v", ts[0], err)
			}
			before = append(before, ts[0].String())
		}
		if s.Issue == nil {
			// A token that was stale before the crash is stale after it.
			s.admits(s.Gate, ts[1])
		}
		if err := s.settled(func(ctx context.Context) error { return s.Crash(ctx, ts[2], "crashed") }); err != nil {
			s.Errorf("%v may not write: %v", ts[2], err)
		}
		s.effects(key, before...)
		s.stale(s.write(ts[0], "late"), ts[0], ts[1].Fence, ts[2].Fence)
		// Whether the previous owner may write depends on whether the crashed owner's
		// admission survived the crash. Once the crashed owner writes again, it may not.
		after := slices.Clone(before)
		if err := s.write(ts[1], "between"); err == nil {
			after = append(after, "between")
		} else {
			s.stale(err, ts[1], ts[2].Fence)
		}
		if err := s.write(ts[2], "back"); err != nil {
			s.Errorf("%v may not write after its crash: %v", ts[2], err)
		}
		after = append(after, "back")
		s.stale(s.write(ts[1], "late"), ts[1], ts[2].Fence)
		s.effects(key, after...)
	}
}
