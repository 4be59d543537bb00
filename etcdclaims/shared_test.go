package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
)

// shares fails unless all of the claims share "k" now, and nobody else does.
func (w *world) shares(other *etcdclaims.Client, claims ...*etcdclaims.Claim) {
	w.Helper()
	ctx := context.Background()
	_, err := other.TryAcquire(ctx, "k")
	var held *etcdclaims.HeldError
	if !errors.As(err, &held) || held.Info.Kind != "shared" || held.Info.Shared != int64(len(claims)) || held.Info.Fence != claims[0].Fence() {
		w.Fatalf("an exclusive claim beside %d shared ones: %v", len(claims), err)
	}
	info, err := other.Lookup(ctx, "k")
	if err != nil || !info.Held || info.Shared != int64(len(claims)) || info.Fence != claims[0].Fence() {
		w.Errorf("looked up: %+v, %v", info, err)
	}
	for _, cl := range claims {
		if owns, err := cl.Owns(ctx); !owns || err != nil || cl.Check() != nil {
			w.Errorf("owns %v, %v; %v", owns, err, cl.Check())
		}
		if want := (fencing.Token{Key: "k", Fence: claims[0].Fence()}); cl.Token() != want || cl.Key() != "k" || cl.Slot() != 0 {
			w.Errorf("got %v, want %v", cl.Token(), want)
		}
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, b := w.peer(), w.peer()
		before := tryClaim(t, a, "k")
		if _, err := b.TryAcquire(context.Background(), "k", etcdclaims.Shared()); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("beside an exclusive claim: %v", err)
		}
		release(t, before)
		var claims []*etcdclaims.Claim
		for _, c := range []*etcdclaims.Client{a, b, a, b} {
			claims = append(claims, tryClaim(t, c, "k", etcdclaims.Shared()))
		}
		if claims[0].Fence() <= before.Fence() {
			t.Errorf("fence %d after %d", claims[0].Fence(), before.Fence())
		}
		w.shares(b, claims...)
		time.Sleep(time.Minute) // renewed
		w.shares(b, claims...)
		for i, cl := range claims {
			if i > 0 {
				w.shares(b, claims[i:]...)
			}
			noErr(t, cl.Note(context.Background(), []byte("nearly done")))
			release(t, cl)
		}
		after := tryClaim(t, b, "k")
		if after.Fence() <= claims[3].Fence() {
			t.Errorf("fence %d after %d", after.Fence(), claims[3].Fence())
		}
		release(t, after)
		w.CloseClean(a, b)
		w.NoLeases()
	})
}

// A shared claim takes one round trip, also beside others of its client.
func TestSharedCost(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		release(t, tryClaim(t, a, "warm"))
		for i, want := range []int64{1, 1, 1} {
			before := a.Stats().Requests
			tryClaim(t, a, "k", etcdclaims.Shared())
			if n := a.Stats().Requests - before; n > want {
				t.Errorf("claim %d: %d requests, want %d", i, n, want)
			}
		}
	})
}

// A thousand callers of one client at once, and their releases, share round trips. The
// record goes with the last of them, however they leave.
func TestSharedTogether(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(w *world, c *etcdclaims.Client, claims []*etcdclaims.Claim){
		"Release": func(w *world, _ *etcdclaims.Client, claims []*etcdclaims.Claim) {
			var wg sync.WaitGroup
			for _, cl := range claims {
				wg.Go(func() { release(w, cl) })
			}
			wg.Wait()
		},
		"ReleaseAll": func(w *world, c *etcdclaims.Client, claims []*etcdclaims.Claim) {
			if n, err := c.ReleaseAll(context.Background()); n != len(claims) || err != nil {
				w.Errorf("released %d: %v", n, err)
			}
		},
		"Close": func(w *world, c *etcdclaims.Client, _ []*etcdclaims.Claim) { noErr(w, c.Close(context.Background())) },
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			callers := testetcd.Fewer(1000, 200)
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 5 * time.Millisecond})
			release(t, tryClaim(t, c, "warm"))
			before, begun := c.Stats().Requests, time.Now()
			claims := make([]*etcdclaims.Claim, callers)
			var wg sync.WaitGroup
			for i := range claims {
				wg.Go(func() {
					var err error
					claims[i], err = c.TryAcquire(context.Background(), "k", etcdclaims.Shared())
					noErr(t, err)
				})
			}
			wg.Wait()
			leave(w, c, claims)
			if n, took := c.Stats().Requests-before, time.Since(begun); n > int64(callers/10) || took > sec {
				t.Errorf("%d requests, %v", n, took)
			}
			time.Sleep(sec)
			if got := w.get("own/k"); got != "" {
				t.Errorf("the record is left: %s", got)
			}
		})
	}
}

func TestSharedInput(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c := w.peer()
		for _, opt := range []etcdclaims.AcquireOption{etcdclaims.Slots(2), etcdclaims.Reentrant(), etcdclaims.Supersede()} {
			if _, err := c.TryAcquire(ctx, "k", etcdclaims.Shared(), opt); err == nil {
				t.Error("an option that Shared excludes was accepted")
			}
		}
		long := strings.Repeat("k", etcdclaims.MaxKeyBytes-len("#shared-")-36)
		release(t, tryClaim(t, c, long, etcdclaims.Shared()))
		if _, err := c.TryAcquire(ctx, long+"k", etcdclaims.Shared()); !errors.Is(err, etcdclaims.ErrInvalidKey) {
			t.Errorf("got %v", err)
		}
	})
}

// Exclusive and shared callers are in one line.
func TestSharedLine(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b, c := w.peer(), w.peer(), w.peer()
		shared := etcdclaims.Shared()
		first := tryClaim(t, a, "k", shared)
		var waiting []<-chan claimed
		for i, opts := range [][]etcdclaims.AcquireOption{{}, {shared}, {shared}, {}, {shared}} {
			waiting = append(waiting, acquiring(ctx, []*etcdclaims.Client{a, b, c}[i%3], "k", opts...))
			time.Sleep(sec)
		}
		if _, err := a.TryAcquire(ctx, "k", shared); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("got ahead of the line: %v", err)
		}
		none := func(from int) {
			t.Helper()
			time.Sleep(sec)
			for i := from; i < len(waiting); i++ {
				if len(waiting[i]) > 0 {
					t.Errorf("caller %d has got the key", i)
				}
			}
		}
		none(0)
		release(t, first)
		writer := w.within(sec, waiting[0])
		none(1)
		release(t, writer)
		one, two := w.within(sec, waiting[1]), w.within(sec, waiting[2])
		if one.Fence() != two.Fence() || one.Fence() <= writer.Fence() || writer.Fence() <= first.Fence() {
			t.Errorf("fences %d, %d, %d, %d", first.Fence(), writer.Fence(), one.Fence(), two.Fence())
		}
		none(3)
		release(t, one)
		none(3)
		release(t, two)
		writer = w.within(sec, waiting[3])
		none(4)
		release(t, writer)
		release(t, w.within(sec, waiting[4]))
		w.CloseClean(a, b, c)
	})
}

// Shared callers that wait behind an exclusive one get the key together.
func TestSharedHerd(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		callers := testetcd.Fewer(300, 60)
		a := w.peer()
		var clients []*etcdclaims.Client
		for range 3 {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 5 * time.Millisecond})
			clients = append(clients, c)
		}
		writer := tryClaim(t, a, "k")
		got := make([]<-chan claimed, callers)
		for i := range got {
			got[i] = acquiring(context.Background(), clients[i%3], "k", etcdclaims.Shared())
		}
		time.Sleep(5 * sec)
		last := acquiring(context.Background(), a, "k")
		time.Sleep(5 * sec)
		if n := w.places(); n != callers+1 {
			t.Fatalf("%d in line", n)
		}
		release(t, writer)
		begun := time.Now()
		var claims []*etcdclaims.Claim
		for _, done := range got {
			claims = append(claims, w.within(sec, done))
		}
		if took := time.Since(begun); took > 200*time.Millisecond {
			t.Errorf("after %v", took)
		}
		if len(last) > 0 {
			t.Error("the exclusive caller has the key, too")
		}
		released(t, claims)
		release(t, w.within(sec, last))
		w.CloseClean(append(clients, a)...)
	})
}

// Where readers come and go, so that the record is put and deleted all the time, none of them
// waits for long, nor does a writer among them. Nor do the readers of one client take turns.
func TestSharedChurn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ readers, least int }{"clients": {8, 100}, "of one client": {1, 300}} {
		readers := test.readers
		virtualCase(t, name, func(t *testing.T, w *world) {
			const lasts = sec
			var clients []*etcdclaims.Client
			for range 1 + readers {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayRequest: 2 * time.Millisecond, DelayReply: 3 * time.Millisecond})
				clients = append(clients, c)
			}
			end := time.Now().Add(lasts)
			var took [17]time.Duration
			var cycles [17]int
			var wg sync.WaitGroup
			churn := func(who int, c *etcdclaims.Client, rest time.Duration, opts ...etcdclaims.AcquireOption) {
				for ; time.Now().Before(end); cycles[who]++ {
					begun := time.Now()
					cl, err := c.Acquire(context.Background(), "k", opts...)
					noErr(t, err)
					took[who] = max(took[who], time.Since(begun))
					time.Sleep(time.Millisecond)
					release(t, cl)
					time.Sleep(rest)
				}
			}
			wg.Go(func() { churn(0, clients[0], sec/4) })
			for i := range 16 {
				wg.Go(func() { churn(1+i, clients[1+i%readers], 0, etcdclaims.Shared()) })
			}
			wg.Wait()
			if longest := slices.Max(took[:]); longest > 500*time.Millisecond {
				t.Errorf("took %v; %v", took, cycles)
			}
			all := 0
			for _, n := range cycles[1:] {
				all += n
			}
			if all < test.least || cycles[0] < 2 {
				t.Errorf("%d cycles: %v", all, cycles)
			}
			w.CloseClean(clients...)
		})
	}
}

// The key of shared holders that have died is free within a TTL, and a second and a renewal
// interval if no event arrives.
func TestSharedOfTheDead(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		for _, opts := range [][]etcdclaims.AcquireOption{{}, {etcdclaims.Shared()}} {
			virtualCase(t, fmt.Sprintf("deaf %v, shared %v", deaf, len(opts) > 0), func(t *testing.T, w *world) {
				ctx := context.Background()
				a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				b, hears := w.client(etcdclaims.Config{TTL: 15 * sec})
				one, two := tryClaim(t, a, "k", etcdclaims.Shared()), tryClaim(t, a, "k", etcdclaims.Shared())
				if deaf {
					fault := deafness.Kinds()[deafness.EveryEvent]
					hears.Inject(fault)
				}
				writer := acquiring(ctx, b, "k")
				time.Sleep(sec)
				next := acquiring(ctx, b, "k", opts...)
				time.Sleep(sec)
				host.Cut()
				bound := 15*sec + sec
				if deaf {
					bound += 5 * sec
				}
				got := w.within(bound, writer)
				for _, cl := range []*etcdclaims.Claim{one, two} {
					if cl.Check() == nil || got.Fence() <= cl.Fence() {
						t.Errorf("%v beside %v", cl.Token(), got.Token())
					}
				}
				release(t, got)
				release(t, w.within(6*sec, next))
				host.Heal()
				time.Sleep(sec)
				w.CloseClean(a, b)
			})
		}
	}
}

// A key whose shared holders have died without anybody waiting is free for the next caller.
func TestSharedAbandoned(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		for _, next := range []func() (*etcdclaims.Claim, error){
			func() (*etcdclaims.Claim, error) { return b.TryAcquire(ctx, "k") },
			func() (*etcdclaims.Claim, error) { return b.Acquire(ctx, "k") },
			func() (*etcdclaims.Claim, error) { return b.TryAcquire(ctx, "k", etcdclaims.Shared()) },
			func() (*etcdclaims.Claim, error) {
				all, err := b.TryAcquireAll(ctx, []string{"j", "k"})
				if err != nil {
					return nil, err
				}
				release(t, all[0])
				return all[1], nil
			},
			func() (*etcdclaims.Claim, error) {
				if _, ok, err := locks.New(b).TryAcquire(ctx, "k", "me", time.Minute); !ok || err != nil {
					return nil, fmt.Errorf("a lock: %v, %w", ok, err)
				}
				if ok, err := locks.New(b).Release(ctx, "k", "me"); !ok || err != nil {
					return nil, fmt.Errorf("a lock's release: %v, %w", ok, err)
				}
				return b.TryAcquire(ctx, "k")
			},
		} {
			dead := tryClaim(t, a, "k", etcdclaims.Shared())
			host.Cut()
			time.Sleep(20 * sec)
			if info, err := b.Lookup(ctx, "k"); err != nil || info.Held {
				t.Errorf("%+v, %v", info, err)
			}
			cl, err := next()
			noErr(t, err)
			if cl.Fence() < dead.Fence() {
				t.Errorf("%v after %v", cl.Token(), dead.Token())
			}
			release(t, cl)
			host.Heal()
			time.Sleep(sec)
		}
		w.CloseClean(a, b)
	})
}

func TestLossyShared(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{steps.Take, steps.Enqueue, steps.Advance, steps.Free, claimtest.Verify} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lossy(t, kind, func(t *testing.T, l *loss) {
				ctx := context.Background()
				shared := etcdclaims.Shared()
				other := tryClaim(t, l.other, "k", shared)
				if kind == steps.Take {
					l.strike()
				}
				one := tryClaim(t, l.c, "k", shared)
				l.shares(l.other, other, one)
				writer := tryWaiting(ctx, l.other, "k")
				if kind != steps.Take && kind != steps.Free {
					l.strike()
				}
				two := acquiring(ctx, l.c, "k", shared)
				time.Sleep(20 * sec)
				release(t, other)
				if kind == steps.Free {
					l.strike()
				}
				release(t, one)
				cl := l.within(3*sec, writer)
				if cl.Fence() <= one.Fence() {
					t.Errorf("%v after %v", cl.Token(), one.Token())
				}
				release(t, cl)
				last := l.within(3*sec, two)
				l.shares(l.other, last)
				time.Sleep(31 * sec)
				l.shares(l.other, last)
				release(t, last)
				l.Available("k", l.other)
			})
		})
	}
}

// tryWaiting is acquiring by a caller that is in line when it returns.
func tryWaiting(ctx context.Context, c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) <-chan claimed {
	got := acquiring(ctx, c, key, opts...)
	time.Sleep(sec)
	return got
}

// A shared caller that gives up at any time leaves nothing.
func TestSharedGivenUp(t *testing.T) {
	t.Parallel()
	for _, kind := range []claimtest.Kind{steps.Take, steps.Enqueue, steps.Advance, steps.Undo} {
		virtualCase(t, string(kind), func(t *testing.T, w *world) {
			a := w.peer()
			b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			for i := range 12 {
				met := host.Inject(claimtest.Fault{On: kind, DelayReply: 20 * time.Millisecond})
				held := tryClaim(t, a, "k")
				ctx, cancel := context.WithTimeout(context.Background(), sec)
				gaveUp := acquiring(ctx, b, "k", etcdclaims.Shared())
				time.Sleep(300 * time.Millisecond)
				go release(t, held)
				time.Sleep(time.Duration(i) * 4 * time.Millisecond)
				cancel()
				if got := <-gaveUp; got.err == nil {
					release(t, got.cl)
				}
				time.Sleep(sec) // what is undone is undone in the background
				met.Remove()
				w.Available("k", a)
			}
			w.CloseClean(a, b)
			w.NoLeases()
		})
	}
}

// Zombies, MinHold, MaxHold and forced releases.
func TestSharedOutlived(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		rests := tryClaim(t, a, "k", etcdclaims.Shared(), etcdclaims.MinHold(30*sec))
		limited := tryClaim(t, a, "k", etcdclaims.Shared(), etcdclaims.MaxHold(40*sec))
		release(t, rests)
		w.shares(b, limited, limited)
		time.Sleep(32 * sec)
		w.shares(b, limited)
		next := tryWaiting(ctx, b, "k")
		time.Sleep(9 * sec)
		lossOf(t, limited.Err(), etcdclaims.ReasonMaxHold)
		if len(next) > 0 {
			t.Error("the key of a zombie is free")
		}
		writer := w.within(16*sec, next)
		if writer.Fence() <= limited.Fence() {
			t.Errorf("%v after %v", writer.Token(), limited.Token())
		}
		release(t, writer)
		claims := []*etcdclaims.Claim{tryClaim(t, a, "k", etcdclaims.Shared()), tryClaim(t, b, "k", etcdclaims.Shared())}
		if err := admin.ForceReleaseTerm(ctx, b, limited.Token(), "test"); !errors.Is(err, etcdclaims.ErrRefused) {
			t.Errorf("an earlier term: %v", err)
		}
		noErr(t, admin.ForceReleaseTerm(ctx, b, claims[0].Token(), "test"))
		time.Sleep(sec)
		for _, cl := range claims {
			lossOf(t, cl.Err(), etcdclaims.ReasonDeleted)
		}
		w.Available("k", a)
		w.CloseClean(a, b)
	})
}

// A record that somebody has deleted or replaced ends all claims that share it.
func TestSharedRecordTaken(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		one := tryClaim(t, a, "k", etcdclaims.Shared())
		_, err := w.Raw.Delete(ctx, w.Own("k"))
		noErr(t, err)
		writer := tryClaim(t, b, "k")
		if _, err := one.Txn(ctx).Then().Commit(); !errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("a transaction beside %v: %v", writer.Token(), err)
		}
		release(t, writer)
		two := tryClaim(t, a, "k", etcdclaims.Shared())
		_, err = w.Raw.Delete(ctx, w.Own("k"))
		noErr(t, err)
		time.Sleep(6 * sec)
		lossOf(t, two.Err(), etcdclaims.ReasonDeleted)
		time.Sleep(20 * sec)
		w.Available("k", b)
	})
}

// Raising the epoch ends shared claims. Those of the new epoch wait until the handlers of
// the old one must have stopped.
func TestSharedEpoch(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, b := w.peer(), w.peer()
		old := tryClaim(t, a, "k", etcdclaims.Shared())
		w.Server.RaiseEpoch(t, w.Prefix)
		time.Sleep(6 * sec) // a renewal
		if old.Check() == nil {
			t.Error("the claim outlives its epoch")
		}
		if _, err := b.TryAcquire(ctx, "k", etcdclaims.Shared()); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("beside the handler of the old epoch: %v", err)
		}
		cl := w.within(20*sec, acquiring(ctx, b, "k", etcdclaims.Shared()))
		if cl.Fence() <= old.Fence() || cl.Fence() < 1<<40 {
			t.Errorf("%v after %v", cl.Token(), old.Token())
		}
		w.shares(a, cl)
		noErr(t, admin.ForceReleaseTerm(ctx, b, cl.Token(), "test"))
		w.Available("k", a)
	})
}

// Many callers of both kinds at once: each gets its turn, and no two that exclude each
// other hold the key at the same time.
func TestSharedManyCallers(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		clients := []*etcdclaims.Client{w.peer(), w.peer(), w.peer()}
		const callers = 120
		got := make([]<-chan claimed, callers)
		for i := range got {
			var opts []etcdclaims.AcquireOption
			if i%4 > 0 {
				opts = append(opts, etcdclaims.Shared())
			}
			got[i] = acquiring(context.Background(), clients[i%3], "k", opts...)
		}
		var mu sync.Mutex
		readers, writers, most := 0, 0, 0
		fences := make(map[int64]bool) // of exclusive claims
		enter := func(n *int, by int, cl *etcdclaims.Claim) {
			mu.Lock()
			defer mu.Unlock()
			*n += by
			most = max(most, readers)
			if writers > 1 || writers > 0 && readers > 0 {
				t.Errorf("%d exclusive and %d shared holders", writers, readers)
			}
			if n == &writers {
				fences[cl.Fence()] = true
			} else if fences[cl.Fence()] {
				t.Errorf("a shared claim has the fence %d of an exclusive one", cl.Fence())
			}
		}
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				a := <-got[i]
				if a.err != nil {
					t.Error(a.err)
					return
				}
				n := &readers
				if i%4 == 0 {
					n = &writers
				}
				enter(n, 1, a.cl)
				time.Sleep(10 * time.Millisecond)
				enter(n, -1, a.cl)
				release(t, a.cl)
			})
		}
		wg.Wait()
		if most < 2 || len(fences) != callers/4 {
			t.Errorf("%d shared holders at most, %d exclusive terms", most, len(fences))
		}
		w.CloseClean(clients...)
		w.NoLeases()
	})
}
