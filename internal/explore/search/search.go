// Package search visits every state of a world, breadth first, so the story of a violation is among
// the shortest. A world is a set of values of one type: a state says itself what can happen next.
//
// The search keeps a hash of 64 bits for each state that it has met, not the state: two states with
// the same hash count as one. Of ten million states, any two are taken for one in 3 of a million
// searches. It needs about 60 bytes for a state, and the states of one level.
package search

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
)

// State is one state of a world. It never changes. S is the type itself.
type State[S any] interface {
	// Append appends bytes that are the same for two states if and only if no event can tell them apart.
	Append(b []byte) []byte
	// Events returns all that can happen next. Their order depends on the state alone.
	Events() []Event[S]
	// Check returns what is wrong in the state itself.
	Check() error
	// Calm returns the next event of a run in which nothing fails any more. False means that nothing is left to be done.
	Calm() (Event[S], bool)
	// Settled returns what is wrong with a state in which nothing is left to be done, such as a key that
	// was left behind or a caller that was not served.
	Settled() error
}

// Event is one thing that can happen.
type Event[S any] struct {
	// Tell returns a sentence about it, in the past tense.
	Tell func() string
	// Do returns the state that follows. An error is a violation that the event has shown.
	Do func() (S, error)
}

// Options bound a search.
type Options struct {
	// Most is how many states are visited at most. Zero means no bound.
	Most int
	// Workers is how many goroutines search. Zero means one for each processor.
	Workers int
}

// Result is what a search has found.
type Result struct {
	States   int           // different ones
	Events   int           // that lead from one to another
	Depth    int           // of the longest of the shortest ways to a state
	Complete bool          // no state was left out
	Elapsed  time.Duration // since the search began
	Bad      *Violation    // nil if there is none
}

// Violation is a way to a state that must not be.
type Violation struct {
	Err   error
	Way   []int    // the numbers of the events that lead there, see Event; first the start's
	Story []string // the same in words, with what followed in calm
}

// Error returns the story, one sentence a line.
func (v *Violation) Error() string {
	text := v.Err.Error()
	for i, line := range v.Story {
		text += fmt.Sprintf("\n%4d. %s", i+1, line)
	}
	return text
}

// longestCalm is how many events a calm run may have.
const longestCalm = 10_000

const shards = 256

// search is one run. S is a world's state.
type search[S State[S]] struct {
	starts  []S
	seed    maphash.Seed
	seen    [shards]shard[node]
	calm    [shards]shard[struct{}] // states from which a calm run ends well
	states  atomic.Int64
	events  atomic.Int64
	bad     atomic.Pointer[found]
	workers int
	most    int
}

// node is how a state was met first. A start has itself as the one before.
type node struct {
	before uint64
	event  uint16
}

// found is a violation after an event of a state, or in the state itself if the event is -1.
type found struct {
	state uint64
	event int
	err   error
}

type shard[V any] struct {
	mu sync.Mutex
	of map[uint64]V
}

// add adds a state. It returns false if it is there already.
func (s *shard[V]) add(hash uint64, v V) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.of[hash]; ok {
		return false
	}
	if s.of == nil {
		s.of = make(map[uint64]V)
	}
	s.of[hash] = v
	return true
}

func (s *shard[V]) has(hash uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.of[hash]
	return ok
}

// Run searches from the starts on. It ends with the first violation.
func Run[S State[S]](starts []S, o Options) Result {
	began := clock.Mono()
	s := &search[S]{starts: starts, seed: maphash.MakeSeed(), workers: cmp.Or(o.Workers, runtime.GOMAXPROCS(0)), most: o.Most}
	level := make([]visit[S], 0, len(starts))
	var buf []byte
	for i, start := range starts {
		hash := s.hash(start, &buf)
		if s.enter(start, hash, node{hash, uint16(i)}, &buf) {
			level = append(level, visit[S]{start, hash})
		}
	}
	depth := 0
	for len(level) > 0 && s.bad.Load() == nil && !s.full() {
		level = s.expand(level)
		depth++
	}
	r := Result{
		States: int(s.states.Load()), Events: int(s.events.Load()), Depth: depth,
		Complete: len(level) == 0, Elapsed: clock.Mono().Sub(began),
	}
	if bad := s.bad.Load(); bad != nil {
		r.Bad, r.Complete = s.violation(bad), false
	}
	return r
}

func (s *search[S]) full() bool { return s.most > 0 && int(s.states.Load()) >= s.most }

func (s *search[S]) hash(state S, buf *[]byte) uint64 {
	*buf = state.Append((*buf)[:0])
	return maphash.Bytes(s.seed, *buf)
}

// visit is a state whose events are still to be tried.
type visit[S any] struct {
	state S
	hash  uint64
}

// expand tries all events of a level, and returns the states that are new.
func (s *search[S]) expand(level []visit[S]) []visit[S] {
	next := make([][]visit[S], s.workers)
	var at atomic.Int64
	var all sync.WaitGroup
	for w := range s.workers {
		all.Go(func() {
			var buf []byte
			for s.bad.Load() == nil && !s.full() {
				i := int(at.Add(1)) - 1
				if i >= len(level) {
					return
				}
				v := level[i]
				level[i] = visit[S]{} // so that the state can go
				for n, ev := range v.state.Events() {
					s.events.Add(1)
					to, err := ev.Do()
					if err != nil {
						s.bad.CompareAndSwap(nil, &found{v.hash, n, err})
						return
					}
					if hash := s.hash(to, &buf); s.enter(to, hash, node{v.hash, uint16(n)}, &buf) {
						next[w] = append(next[w], visit[S]{to, hash})
					}
				}
			}
		})
	}
	all.Wait()
	fresh := slices.Concat(next...)
	if s.full() && int(at.Load()) < len(level) {
		fresh = append(fresh, level[len(level)-1]) // not all were tried
	}
	return fresh
}

// enter adds a state, and checks it if it is new. buf is for bytes of states.
func (s *search[S]) enter(state S, hash uint64, from node, buf *[]byte) bool {
	if !s.seen[hash%shards].add(hash, from) {
		return false
	}
	s.states.Add(1)
	err := state.Check()
	if err == nil {
		err = s.calmly(state, hash, buf)
	}
	if err != nil {
		s.bad.CompareAndSwap(nil, &found{hash, -1, err})
	}
	return true
}

// calmly has a state come to rest. What others have come to rest from is not tried again.
func (s *search[S]) calmly(state S, hash uint64, buf *[]byte) error {
	var way []uint64
	for n := 0; !s.calm[hash%shards].has(hash); n++ {
		if n == longestCalm {
			return errors.New("it does not come to rest, although nothing fails any more")
		}
		way = append(way, hash)
		ev, more := state.Calm()
		if !more {
			if err := state.Settled(); err != nil {
				return fmt.Errorf("in the end, %w", err)
			}
			break
		}
		next, err := ev.Do()
		if err != nil {
			return err
		}
		state, hash = next, s.hash(next, buf)
	}
	for _, hash := range way {
		s.calm[hash%shards].add(hash, struct{}{})
	}
	return nil
}

// violation tells how it came to what was found.
func (s *search[S]) violation(bad *found) *Violation {
	var way []int
	if bad.event >= 0 {
		way = append(way, bad.event)
	}
	for at := bad.state; ; {
		shard := &s.seen[at%shards]
		n := shard.of[at]
		way = append(way, int(n.event))
		if n.before == at {
			break
		}
		at = n.before
	}
	slices.Reverse(way)
	v := &Violation{Err: bad.err, Way: way}
	last, story, err := Follow(s.starts, way)
	v.Story = story
	if err == nil && last.Check() == nil {
		_, calm, _ := Calm(last)
		v.Story = append(v.Story, calm...)
	}
	return v
}

// Follow goes a way. It returns the state at its end, what has happened in words, and the violation
// of the last event.
func Follow[S State[S]](starts []S, way []int) (state S, story []string, err error) {
	state = starts[way[0]]
	for _, n := range way[1:] {
		events := state.Events()
		if n >= len(events) {
			return state, story, fmt.Errorf("there is no event %d any more after %d", n, len(story))
		}
		story = append(story, events[n].Tell())
		if state, err = events[n].Do(); err != nil {
			return state, story, err
		}
	}
	return state, story, nil
}

// Calm goes on until nothing is left to be done, for 100 events at most, and nothing fails any more. It returns the
// last state, what has happened in words, and the violation.
func Calm[S State[S]](state S) (last S, story []string, err error) {
	for range 100 {
		ev, more := state.Calm()
		if !more {
			if err := state.Settled(); err != nil {
				return state, story, fmt.Errorf("in the end, %w", err)
			}
			break
		}
		story = append(story, "(nothing fails any more) "+ev.Tell())
		if state, err = ev.Do(); err != nil {
			break
		}
	}
	return state, story, err
}
