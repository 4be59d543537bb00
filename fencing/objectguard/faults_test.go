package objectguard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/objectguard"
)

// Each fault of a single write, of the first of an object and of later ones, is
// made good: the write is done once, and said to be done.
func TestOneFault(t *testing.T) {
	t.Parallel()
	for what, faults := range map[string][]fault{
		"lost":               {lost},
		"reply lost":         {replyLost},
		"sent twice":         {twice},
		"late":               {late},
		"409":                {clash},
		"409, then twice":    {clash, twice},
		"lost, then twice":   {lost, twice},
		"late, then lost":    {late, lost, replyLost},
		"denied once it was": {replyLost, denied},
		"late, then denied":  {late, denied},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(shop)
				o := open(t, s, "state")
				for i, line := range []string{"1", "2"} {
					s.next = inTurn(faults...)
					must(t, o.Update(t.Context(), older, func(old []byte) ([]byte, error) { return append(old, line...), nil }))
					s.deliver()
					has(t, o, older, "12"[:i+1])
				}
				s.next = inTurn(faults...)
				must(t, o.Write(t.Context(), older, []byte("3")))
				s.deliver()
				has(t, o, older, "3")
				s.next = inTurn(faults...)
				must(t, o.Admit(t.Context(), newer))
				s.deliver()
				has(t, o, newer, "3")
			})
		})
	}
}

// What an old owner sent arrives after the new one has sealed the object, at
// which point the data are what they were: only the fence is another.
func TestLateWriteAfterSeal(t *testing.T) {
	t.Parallel()
	for what, prepare := range map[string]func(o *objectguard.Object) error{
		"of an object that is there": func(o *objectguard.Object) error { return o.Write(t.Context(), older, []byte("a")) },
		"of one that is not":         func(*objectguard.Object) error { return nil },
	} {
		t.Run(what, func(t *testing.T) {
			s := new(shop)
			old, next := open(t, s, "state"), open(t, s, "state")
			must(t, prepare(old))
			ctx, cancel := context.WithCancel(t.Context())
			s.next = func(string) fault { cancel(); return late }
			wants(t, old.Write(ctx, older, []byte("late")), fencing.ErrUnknown, context.Canceled, errCut)
			s.next = nil
			must(t, next.Admit(t.Context(), newer))
			before := s.content("state")
			s.deliver()
			if got := s.content("state"); got != before {
				t.Errorf("the late write passed the seal: %q", got)
			}
			wants(t, old.Write(t.Context(), older, []byte("late")), fencing.ErrStale)
		})
	}
}

// However often a newer owner has written meanwhile: the object knows of each owner
// before what it wrote last.
func TestWritesInBetween(t *testing.T) {
	t.Parallel()
	for _, between := range []int{0, 1, 15, 16, 40} {
		for _, f := range []fault{replyLost, twice, late} {
			t.Run(fmt.Sprintf("%d after fault %d", between, f), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := new(shop)
					ours, theirs := open(t, s, "state"), open(t, s, "state")
					must(t, ours.Write(t.Context(), older, []byte("a")))
					begun := false
					others := func(string) {
						if begun {
							return
						}
						begun = true
						for range between {
							must(t, theirs.Write(t.Context(), newer, []byte("b")))
						}
					}
					s.next = inTurn(f)
					if f == twice {
						// Between the two tries of the store's client.
						s.next = inTurn(replyLost)
						s.after = others
						ours = open(t, again{s}, "state")
					} else {
						s.after = others
					}
					err := ours.Write(t.Context(), older, []byte("ours"))
					s.after = nil
					s.deliver()
					if f == late && between > 0 {
						wants(t, err, fencing.ErrStale)
					} else {
						must(t, err)
					}
					if between > 0 {
						has(t, theirs, newer, "b")
					}
				})
			})
		}
	}
}

// Once too many came the ids are gone, and nobody knows.
func TestTooManyInBetween(t *testing.T) {
	t.Parallel()
	many := func(do func(i int) error) func(t *testing.T) {
		return func(t *testing.T) {
			for i := range 20 {
				must(t, do(i))
			}
		}
	}
	for what, test := range map[string]struct {
		first  bool // there is nothing before the write
		token  fencing.Token
		fault  fault
		others func(o *objectguard.Object) func(t *testing.T)
		want   error
	}{
		"writes of the same owner": {false, older, replyLost, func(o *objectguard.Object) func(*testing.T) {
			return many(func(int) error { return o.Write(t.Context(), older, nil) })
		}, fencing.ErrUnknown},
		"the same, and it was not done": {false, older, late, func(o *objectguard.Object) func(*testing.T) {
			return many(func(int) error { return o.Write(t.Context(), older, nil) })
		}, fencing.ErrUnknown},
		"the same, and it would be the first": {true, older, late, func(o *objectguard.Object) func(*testing.T) {
			return many(func(int) error { return o.Write(t.Context(), older, nil) })
		}, fencing.ErrUnknown},
		// The owner before was followed by this very write, or by another.
		"writes of the same owner, who is new": {false, newer, replyLost, func(o *objectguard.Object) func(*testing.T) {
			return many(func(int) error { return o.Write(t.Context(), newer, nil) })
		}, fencing.ErrUnknown},
		"owners": {false, older, late, func(o *objectguard.Object) func(*testing.T) {
			return many(func(i int) error {
				return o.Admit(t.Context(), fencing.Token{Key: newer.Key, Fence: newer.Fence + int64(i)})
			})
		}, fencing.ErrUnknown},
		"a newer owner's, after a seal": {false, older, late, func(o *objectguard.Object) func(*testing.T) {
			return many(func(int) error { return o.Write(t.Context(), newer, nil) })
		}, fencing.ErrStale},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(shop)
				ours, theirs := open(t, s, "state"), open(t, s, "state")
				if !test.first {
					must(t, ours.Write(t.Context(), older, []byte("a")))
				}
				s.next = inTurn(test.fault)
				begun := false
				s.after = func(string) {
					if !begun {
						begun = true
						test.others(theirs)(t)
					}
				}
				wants(t, ours.Write(t.Context(), test.token, []byte("ours")), test.want)
				before := s.content("state")
				s.deliver()
				if got := s.content("state"); got != before {
					t.Errorf("what was late came through: %q", got)
				}
			})
		})
	}
}

// An owner that slept while a newer one wrote for hours is stale, and told so,
// though the first it does is to write by memory.
func TestSleeper(t *testing.T) {
	t.Parallel()
	s := new(shop)
	sleeper, next := open(t, s, "state"), open(t, s, "state")
	must(t, sleeper.Write(t.Context(), older, []byte("a")))
	for range 100 {
		must(t, next.Write(t.Context(), newer, []byte("b")))
	}
	wants(t, sleeper.Write(t.Context(), older, []byte("late")), fencing.ErrStale)
	has(t, next, newer, "b")
}

// again is a store whose client sends a write again by itself.
type again struct{ *shop }

func (a again) Replace(ctx context.Context, name string, data []byte, version string) (string, error) {
	if v, err := a.shop.Replace(ctx, name, data, version); err == nil || errors.Is(err, objectguard.ErrConflict) {
		return v, err
	}
	return a.shop.Replace(ctx, name, data, version)
}

func TestStoreThatIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(shop)
		o := open(t, s, "state")
		must(t, o.Write(t.Context(), older, []byte("a")))
		s.next = func(string) fault { return lost }
		s.counted()
		wants(t, o.Write(t.Context(), older, []byte("b")), fencing.ErrUnknown, errCut) // in the end
		if got := s.counted(); got[1] < 3 || got[1] > 20 {
			t.Errorf("tried %d times", got[1])
		}
		s.next = func(string) fault { return clash }
		wants(t, o.Write(t.Context(), older, []byte("b")), fencing.ErrUnknown)
		s.next = func(string) fault { return denied }
		s.counted()
		wants(t, o.Write(t.Context(), older, []byte("b")), objectguard.ErrRefused)
		if got := s.counted(); got[1] != 1 {
			t.Errorf("tried %d times, though it was denied", got[1])
		}

		// A caller that goes while a request is out does not know.
		s.next = func(string) fault { return cutOff }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wants(t, o.Write(ctx, older, []byte("b")), fencing.ErrUnknown, context.DeadlineExceeded)

		// One that cannot read has not written.
		s.next, s.readErr = nil, errCut
		s.counted()
		wants(t, o.Admit(t.Context(), newer), errCut)
		if got := s.counted(); got[1] != 0 {
			t.Errorf("written %d times without a look", got[1])
		}
		_, _, err := o.Read(t.Context())
		wants(t, err, errCut)
		// Nor does one know that cannot look after a conflict.
		s.readErr = nil
		must(t, o.Write(t.Context(), older, []byte("c")))
		s.next = func(string) fault { s.readErr = errCut; return clash }
		wants(t, o.Write(t.Context(), older, []byte("d")), fencing.ErrUnknown, errCut)
	})
}

// A store that answers with what was there before finds out when it writes.
func TestStaleReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(shop)
		o := open(t, s, "state")
		must(t, o.Write(t.Context(), older, []byte("1")))
		must(t, o.Update(t.Context(), older, func(old []byte) ([]byte, error) { return append(old, '2'), nil }))
		s.stale = 1
		must(t, open(t, s, "state").Update(t.Context(), older, func(old []byte) ([]byte, error) { return append(old, '3'), nil }))
		has(t, o, older, "123")
		must(t, o.Admit(t.Context(), newer))
		s.stale = 1
		wants(t, open(t, s, "state").Write(t.Context(), older, []byte("late")), fencing.ErrStale)
		s.stale = 100
		wants(t, open(t, s, "state").Write(t.Context(), older, []byte("late")), fencing.ErrUnknown)
		s.stale = 0
		has(t, o, newer, "123")
	})
}

func TestObjectThatSomebodyRemoved(t *testing.T) {
	t.Parallel()
	s := new(shop)
	o := open(t, s, "state")
	must(t, o.Write(t.Context(), older, []byte("a")))
	s.overwrite("state", nil)
	// Whether the write came before that cannot be told.
	wants(t, o.Write(t.Context(), older, []byte("b")), fencing.ErrUnknown)
	must(t, o.Write(t.Context(), older, []byte("c")))
	has(t, o, older, "c")
}

// With others in the way of each try it ends, in time, and has done nothing.
func TestNeverQuickEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(shop)
		ours, theirs := open(t, s, "state"), open(t, s, "state")
		busy := false
		s.before = func(string) {
			if !busy {
				busy = true
				must(t, theirs.Write(t.Context(), older, []byte("theirs")))
				busy = false
			}
		}
		wants(t, ours.Write(t.Context(), older, []byte("ours")), objectguard.ErrConflict)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		begun := time.Now()
		wants(t, ours.Write(ctx, older, []byte("ours")), objectguard.ErrConflict, context.DeadlineExceeded)
		if took := time.Since(begun); took > 20*time.Millisecond {
			t.Errorf("its context ended after 20 ms, it after %v", took)
		}
		s.before = nil
		has(t, ours, older, "theirs")
	})
}

// Many writers of one owner at once: each has its turn.
func TestStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const writers, writes = 32, 4
		s := &shop{before: func(string) { time.Sleep(20*time.Millisecond + rand.N(20*time.Millisecond)) }}
		var wg sync.WaitGroup
		var mu sync.Mutex
		want := map[string]bool{}
		begun := time.Now()
		for w := range writers {
			o := open(t, s, "state")
			wg.Go(func() {
				for n := range writes {
					line := fmt.Sprintf("%d.%d\n", w, n)
					err := o.Update(t.Context(), older, func(old []byte) ([]byte, error) { return append(old, line...), nil })
					if err != nil && !errors.Is(err, objectguard.ErrConflict) {
						t.Error(err)
					}
					mu.Lock()
					want[line] = err == nil
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		took, failed := time.Since(begun), 0
		data := s.content("state")
		for line, is := range want {
			if !is {
				failed++
			}
			if strings.Contains(data, line) != is {
				t.Errorf("%q: said to be done: %v", line, is)
			}
		}
		t.Logf("%d writes of %d ms: %v, %d requests, %d gave up", writers*writes, 30, took, s.counted()[1], failed)
		if failed > writers*writes/10 {
			t.Errorf("%d of %d gave up", failed, writers*writes)
		}
	})
}

// Owners come and go, and everything goes wrong at once. What was said of each
// write is true in the end.
func TestChaos(t *testing.T) {
	t.Parallel()
	for seed := range 40 {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, chaos)
		})
	}
}

func chaos(t *testing.T) {
	s := &shop{}
	s.next = func(string) fault {
		time.Sleep(rand.N(30 * time.Millisecond))
		if rand.IntN(3) > 0 {
			return none
		}
		return []fault{lost, replyLost, twice, late, clash, denied, cutOff}[rand.IntN(7)]
	}
	const owners, writers, writes = 8, 3, 4
	type outcome struct {
		line string
		err  error
	}
	var mu sync.Mutex
	var all []outcome
	var wg sync.WaitGroup
	for n := range owners {
		token := fencing.Token{Key: "k", Fence: int64(n + 1)}
		o := open(t, s, "state")
		for w := range writers {
			wg.Go(func() {
				for i := range writes {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond+rand.N(5*time.Second))
					line := fmt.Sprintf("%d %d.%d", n+1, w, i)
					err := o.Update(ctx, token, func(old []byte) ([]byte, error) { return fmt.Append(old, line, "\n"), nil })
					cancel()
					mu.Lock()
					all = append(all, outcome{line, err})
					mu.Unlock()
				}
			})
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		s.deliver()
	}
	wg.Wait()
	s.deliver()
	s.next = nil
	content, _, err := open(t, s, "state").Read(t.Context())
	if err != nil && !errors.Is(err, objectguard.ErrNotFound) {
		t.Fatal(err)
	}
	var fences []int64
	count := map[string]int{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		count[line]++
		fence, _, _ := strings.Cut(line, " ")
		f, err := strconv.ParseInt(fence, 10, 64)
		must(t, err)
		fences = append(fences, f)
	}
	if !slices.IsSorted(fences) {
		t.Errorf("a late owner wrote: %d", fences)
	}
	for _, o := range all {
		switch n := count[o.line]; {
		case n > 1, o.err == nil && n != 1, o.err != nil && !errors.Is(o.err, fencing.ErrUnknown) && n > 0:
			t.Errorf("%q is there %d times, and was told: %v", o.line, n, o.err)
		}
	}
}

func FuzzContent(f *testing.F) {
	s := new(shop)
	o, err := objectguard.New(s, "state")
	if err != nil {
		f.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return o.Admit(f.Context(), older) },
		func() error {
			return o.Write(f.Context(), fencing.Token{Key: "日本 \"x\"", Fence: 1<<63 - 1}, []byte("a\nb"))
		},
	} {
		_ = step()
		f.Add([]byte(s.content("state")))
	}
	f.Add([]byte("fenced/1 data AAAAAAAAAAAAAAAA,AAAAAAAAAAAAAAAB AAAAAAAAAAAAAAAC 33;key=\"orders/42\"\nhello"))
	f.Add([]byte("fenced/1 none  - 33;key=\"k\"\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := new(shop)
		s.objects, s.old = map[string][]byte{"state": content}, map[string][]byte{}
		o := open(t, s, "state")
		data, token, err := o.Read(t.Context())
		if errors.Is(err, objectguard.ErrForeign) {
			wants(t, o.Write(t.Context(), newer, nil), objectguard.ErrForeign)
			return
		}
		if err != nil && !errors.Is(err, objectguard.ErrNotFound) {
			t.Fatal(err)
		}
		must(t, token.Validate())
		// Data are what follows the line, byte for byte, and the owner may go on.
		if line, rest, _ := bytes.Cut(content, []byte("\n")); !bytes.Equal(rest, data) || !bytes.HasSuffix(line, []byte(token.String())) {
			t.Errorf("%q has %q of %v", content, data, token)
		}
		must(t, o.Update(t.Context(), token, func(old []byte) ([]byte, error) { return append(old, 'x'), nil }))
		has(t, o, token, string(data)+"x")
		if token.Fence > 1 {
			late := fencing.Token{Key: token.Key, Fence: token.Fence - 1}
			wants(t, o.Write(t.Context(), late, nil), fencing.ErrStale)
		}
	})
}
