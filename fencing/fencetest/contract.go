package fencetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/fencing"
)

// maxKeyBytes is the length of the longest key of a token.
const maxKeyBytes = 1024

func (s *trial) newerShutsOutOlder() {
	ts := s.tokens("orders/42", 2)
	if s.Issue == nil { // with Issue the first token is stale already
		s.admits(s.Gate, ts[0])
	}
	s.admits(s.Gate, ts[1])
	s.refuses(s.Gate, ts[0], ts[1].Fence)
	s.refuses(s.Gate, ts[0], ts[1].Fence) // trying again does not help
	s.admits(s.Gate, ts[1])
	last := s.next("orders/42")
	s.admits(s.Gate, last)
	for _, t := range ts {
		s.refuses(s.Gate, t, last.Fence)
	}
	// An owner can seal without having written.
	seal := s.next("orders/42")
	if err := s.settled(func(ctx context.Context) error { return known(fencing.Seal(ctx, seal, s.Gate)) }); err != nil {
		s.Error(err)
	}
	s.refuses(s.Gate, last, seal.Fence)
}

func (s *trial) equalPasses() {
	for range 3 {
		t := s.next("orders/42")
		for range 4 {
			s.admits(s.Gate, t)
		}
	}
}

// keys are keys that a store could confuse: if it compares by case, by language,
// without trailing spaces, by a prefix of the key, or as paths.
var keys = []string{
	"a", "A", "á", "a\u0301", "Á", "ａ", "a ", " a", "aa",
	"a/", "a//b", "a/b", "a/../a", "./a", ".", "..", "/", "a%2Fb", "a%2fb", "a+b", "a?b", "a#b", "a\\b",
	"ß", "ss", "ẞ", "SS", "İ", "i", "ı", "I", "Å", "\u212b", "ﬁ", "fi",
	"a'b", "a''b", `a"b`, "a`b", "a;b", "a--b", "a_b", "a%b",
	"0", "00", "1", "01", "1.0", "null", "NULL", "true",
	"a\u200b", "a\u00ad", "\U0001f512", "\U0001f513", "é", "e\u0301", "日本", "日夲",
	strings.Repeat("k", maxKeyBytes), strings.Repeat("k", maxKeyBytes-1), strings.Repeat("k", maxKeyBytes-1) + "l",
	strings.Repeat("k", 255), strings.Repeat("k", 256), strings.Repeat("k", 767),
	strings.Repeat("\U0001f512", maxKeyBytes/4),
}

func (s *trial) keysAreIndependent() {
	old, now := make([]fencing.Token, len(keys)), make([]fencing.Token, len(keys))
	for i, key := range keys {
		ts := s.tokens(key, 2+i%3)
		old[i], now[i] = ts[0], ts[len(ts)-1]
	}
	// All fences differ. The greatest comes first: a gate that confuses two keys refuses
	// one of them.
	for i := range slices.Backward(now) {
		s.admits(s.Gate, now[i])
	}
	for _, i := range rand.Perm(len(keys)) {
		s.refuses(s.Gate, old[i], now[i].Fence)
		s.admits(s.Gate, now[i])
	}
}

// adjacentFences tries fences that a store confuses or orders wrongly if it keeps
// them as 32 bits, as floats, or as text.
func (s *trial) adjacentFences() {
	if s.Issue != nil {
		s.Skip("this gate accepts only issued tokens")
	}
	fence := []int64{
		9, 10, 99, 100,
		1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<47 - 1, 1 << 47,
		999_999_999_999_999, 1_000_000_000_000_000,
		8<<47 + 1, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 2, 1<<63 - 1,
	}
	for i, f := range fence {
		t := fencing.Token{Key: "fences", Fence: f}
		s.admits(s.Gate, t)
		if i > 0 {
			s.refuses(s.Gate, fencing.Token{Key: t.Key, Fence: fence[i-1]}, f)
			s.refuses(s.Gate, fencing.Token{Key: t.Key, Fence: f - 1}, f)
		}
		s.admits(s.Gate, t)
	}
}

func (s *trial) invalidTokens() {
	t := s.next("k")
	s.admits(s.Gate, t)
	for _, invalid := range []fencing.Token{
		{},
		{Key: "k"},
		{Key: "k", Fence: -1},
		{Key: "k", Fence: -1 << 63},
		{Fence: t.Fence + 1},
		{Key: "k\x00", Fence: t.Fence + 1},
		{Key: "k\n", Fence: t.Fence + 1},
		{Key: "k\xff", Fence: t.Fence + 1},
		{Key: strings.Repeat("k", maxKeyBytes+1), Fence: t.Fence + 1},
	} {
		want := fencing.ErrMalformed
		if invalid.Fence == 0 {
			want = fencing.ErrNoToken
		}
		if err := s.Gate.Admit(s.Context(), invalid); !errors.Is(err, want) {
			s.Errorf("%v: %v, want %v", invalid, err, want)
		}
	}
	s.admits(s.Gate, t)
}

// callerGone checks that a caller whose context has ended is admitted or gets an
// error of another kind, never a refusal.
func (s *trial) callerGone() {
	gone, cancel := context.WithCancel(s.Context())
	cancel()
	t := s.next("k")
	err := s.Gate.Admit(gone, t)
	if errors.Is(err, fencing.ErrStale) || errors.Is(err, fencing.ErrNoToken) || errors.Is(err, fencing.ErrMalformed) {
		s.Errorf("the newest owner, with a canceled context, is refused: %v", err)
	}
	s.admits(s.Gate, t)
	newer := s.next("k")
	s.admits(s.Gate, newer)
	s.refuses(s.Gate, t, newer.Fence)
}

// rounds is how often a test with random timing repeats.
const rounds = 25

// processes returns the gates of several processes on one store, if Restart can
// open them.
func (s *trial) processes() []fencing.Gate {
	gates := []fencing.Gate{s.Gate}
	if s.Restart != nil {
		gates = append(gates, s.Restart(s.T), s.Restart(s.T))
	}
	return gates
}

func (s *trial) ownersRace() {
	gates := s.processes()
	for range rounds {
		ts := s.tokens("k", 2)
		var wg sync.WaitGroup
		for i, t := range ts {
			wg.Go(func() {
				err := s.try(gates[i%len(gates)], t)
				if i == len(ts)-1 && err != nil {
					s.Errorf("the newest token, %v, is refused: %v", t, err)
				} else if err != nil && !errors.Is(err, fencing.ErrStale) {
					s.Errorf("%v: %v", t, err)
				}
			})
		}
		wg.Wait()
		s.refuses(s.Gate, ts[0], ts[1].Fence)
		s.admits(s.Gate, ts[1])
	}
}

func (s *trial) restart() {
	if s.Restart == nil {
		s.Skip("this gate forgets when its process ends: it is an early reject only")
	}
	for i := range 3 {
		ts := s.tokens("k", 2)
		s.admits(s.Gate, ts[1])
		before := s.Gate
		s.Gate = s.Restart(s.T)
		s.refuses(s.Gate, ts[0], ts[1].Fence)
		s.admits(s.Gate, ts[1])
		if i == 0 { // the old process runs beside the new one, as in a rolling deployment
			newer := s.next("k")
			s.admits(s.Gate, newer)
			s.refuses(before, ts[1], newer.Fence)
			s.admits(before, newer)
		}
	}
}
