package etcdclaims_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
)

var soaking = flag.Duration("soak", defaultSoak, "how long TestSoak lasts, in virtual time")

// soak is a day of random calls by several clients of one etcd.
type soak struct {
	*world
	clients []*etcdclaims.Client
	jobs    int
	mu      sync.Mutex
	calls   map[string]int
}

// TestSoak uses the whole API at random for a day of virtual time. Then keys,
// leases, goroutines and heap must be back where they were a few hours after its
// beginning, and after Close nothing may be left in etcd.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes for half a minute")
	}
	virtually(t, func(t *testing.T, w *world) {
		s := &soak{world: w, calls: map[string]int{}}
		hosts := make([]*claimtest.Host, 3)
		for i := range hosts {
			c, host := w.client(etcdclaims.Config{
				TTL: time.Minute, Owner: fmt.Sprint("client", i),
			})
			worksWith(work.Config{
				Retention: 10 * time.Minute, DeadRetention: 15 * time.Minute, MaxAttempts: 3,
				Backoff: func(int) time.Duration { return time.Minute },
			}, c)
			s.clients, hosts[i] = append(s.clients, c), host
		}
		// So that calls are under way when their callers give up.
		hosts[0].Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: 5 * time.Millisecond})
		s.use(*soaking / 4) // after which etcd's own log has its full length
		before := s.measure()
		s.use(*soaking)
		after := s.measure()
		t.Logf("before: %v; after: %v; calls: %v", before, after, s.calls)
		if after.keys > before.keys || after.leases > before.leases || after.goroutines > before.goroutines {
			t.Errorf("before: %v; after: %v; etcd has %v; goroutines:\n%s", before, after, w.All(), strings.Join(goroutines(), "\n\n"))
		}
		if grown := after.heap - before.heap; grown > 8<<20 {
			t.Errorf("the heap has grown by %d KiB", grown>>10)
		}
		for _, c := range s.clients {
			if st := c.Stats(); st.Held != 0 || st.Sessions > 1 {
				t.Errorf("a client that nobody uses has %d claims and %d sessions", st.Held, st.Sessions)
			}
		}
		w.CloseClean(s.clients...)
		w.NoLeases()
	})
}

// use lets workers call at random for a while, and all come to rest then.
func (s *soak) use(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 2 * len(s.clients) {
		rng := rand.New(rand.NewPCG(uint64(d), uint64(i)))
		wg.Go(func() {
			for ctx.Err() == nil {
				s.call(ctx, s.clients[i%len(s.clients)], rng)
				pauseFor(ctx, time.Duration(rng.Int64N(int64(4*time.Minute))))
			}
		})
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		for ctx.Err() == nil {
			pauseFor(ctx, time.Hour)
			s.Server.Compact(s.T)
		}
	}()
	wg.Wait()
	time.Sleep(10 * time.Minute) // whatever was held is free
	s.removeRecords()
	time.Sleep(40 * time.Minute) // retention, and the ends of sessions that nobody uses
	s.Server.Compact(s.T)
}

// removeRecords removes what remains of keys with slots and of shared keys at rest.
func (s *soak) removeRecords() {
	s.Helper()
	for n := range soakRecords {
		noErr(s, admin.Resize(context.Background(), s.clients[0], slotted(n), 0))
		release(s, tryClaim(s, s.clients[0], shared(n)))
	}
}

// soakRecords is how many keys have slots, and how many are shared.
const soakRecords = 3

func slotted(n int) string { return fmt.Sprint("slotted", n) }
func shared(n int) string  { return fmt.Sprint("shared", n) }

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// measured is what must not grow.
type measured struct {
	keys, leases, goroutines int
	heap                     int64
}

func (m measured) String() string {
	return fmt.Sprintf("%d keys, %d leases, %d goroutines, %d KiB", m.keys, m.leases, m.goroutines, m.heap>>10)
}

func (s *soak) measure() measured {
	s.Helper()
	keys := 0
	for key, value := range s.All() {
		if strings.HasPrefix(key, s.Prefix+"audit/") {
			continue // bounded by number and age
		}
		if keys++; !strings.Contains(key, "/live/") {
			s.Errorf("at rest there is %s = %s", key, value)
		}
	}
	leases, err := s.Raw.Leases(context.Background())
	noErr(s, err)
	var mem runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&mem)
	return measured{keys, len(leases.Leases), len(goroutines()), int64(mem.HeapAlloc)}
}

// goroutines returns the stacks of the package's own: gRPC and etcd open and close
// connections as they like.
func goroutines() (own []string) {
	b := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if strings.Contains(stack, "claims/etcdclaims.(") {
			own = append(own, stack)
		}
	}
	return own
}

// call makes one call at random, and ends what it began.
func (s *soak) call(ctx context.Context, c *etcdclaims.Client, rng *rand.Rand) {
	key := fmt.Sprint("k", rng.IntN(12))
	most := time.Duration(rng.Int64N(int64(20 * sec)))
	if rng.IntN(5) == 0 {
		most = time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	calls := []struct {
		name string
		do   func() error
	}{
		{"TryAcquire", func() error {
			return s.hold(rng)(c.TryAcquire(limited, key, accepted[etcdclaims.AcquireOption](s.option(rng))...))
		}},
		{"Acquire", func() error {
			return s.hold(rng)(c.Acquire(limited, key, accepted[etcdclaims.AcquireOption](s.option(rng))...))
		}},
		{"Run", func() error {
			return c.Run(limited, key, func(ctx context.Context) error {
				pauseFor(ctx, time.Duration(rng.Int64N(int64(40*sec))))
				return nil
			})
		}},
		{"Begin", func() error { return s.work(limited, c, rng) }},
		{"Runner.Run", func() error { return s.runWork(limited, c, rng) }},
		{"Records", func() error { return s.retry(limited, c, rng) }},
		{"Slots", func() error { return s.slots(limited, c, rng) }},
		{"Resize", func() error { return admin.Resize(limited, c, slotted(rng.IntN(soakRecords)), rng.IntN(5)) }},
		{"Shared", func() error { return s.share(limited, c, rng) }},
		{"TryAcquireAll", func() error {
			cls, err := c.TryAcquireAll(limited, []string{key, "a", "b"}, accepted[etcdclaims.AllOption](s.option(rng))...)
			for _, cl := range cls {
				_ = s.hold(rng)(cl, err)
			}
			return err
		}},
		{"TryAcquireEach", func() error {
			cls, errs := c.TryAcquireEach(limited, []string{key, "a", "c"}, accepted[etcdclaims.ManyOption](s.option(rng))...)
			for i, cl := range cls {
				_ = s.hold(rng)(cl, errs[i])
			}
			return nil
		}},
		{"Manual", func() error {
			cl, err := c.TryAcquire(limited, key, etcdclaims.Manual(), etcdclaims.TTL(10*sec))
			if err != nil || rng.IntN(4) == 0 {
				return err // forgotten: it ends by itself
			}
			time.Sleep(time.Duration(rng.Int64N(int64(8 * sec))))
			_ = cl.Renew(limited)
			return cl.Release(context.Background())
		}},
		{"Locks", func() error { return s.locks(limited, locks.New(c), rng, key) }},
		{"ForceRelease", func() error {
			n := rng.IntN(soakRecords)
			keys := []string{key, shared(n), etcdclaims.SlotKey(slotted(n), rng.IntN(3))}
			return admin.ForceRelease(limited, c, keys[rng.IntN(len(keys))], "at random")
		}},
		{"ReleaseAll", func() error {
			if rng.IntN(10) > 0 {
				return nil
			}
			_, err := c.ReleaseAll(limited)
			return err
		}},
		{"views", func() error { return s.view(limited, c, key) }},
	}
	n := rng.IntN(len(calls))
	s.count(calls[n].name, calls[n].do())
}

func (s *soak) count(call string, err error) {
	if err != nil {
		call = "not " + call
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
}

// option returns options of an acquisition, at most one.
func (s *soak) option(rng *rand.Rand) []any {
	one := []any{
		etcdclaims.TTL(time.Duration(40+10*rng.IntN(5)) * sec), etcdclaims.MinHold(time.Duration(rng.IntN(90)) * sec), etcdclaims.MaxHold(time.Duration(10+rng.IntN(90)) * sec),
		etcdclaims.Note([]byte("note")), etcdclaims.Supersede(), etcdclaims.Reentrant(), etcdclaims.LazyRelease(),
	}
	n := rng.IntN(2 * len(one))
	if n >= len(one) {
		return nil
	}
	return one[n : n+1]
}

// hold takes what an acquisition returned, and gives it up after a while.
func (s *soak) hold(rng *rand.Rand) func(cl *etcdclaims.Claim, err error) error {
	return func(cl *etcdclaims.Claim, err error) error {
		if err != nil {
			return err
		}
		pauseFor(cl.Context(), time.Duration(rng.Int64N(int64(30*sec))))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.Int64N(int64(50*time.Millisecond))))
		defer cancel()
		return cl.Release(ctx)
	}
}

// job names work, new or old.
func (s *soak) job(rng *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs++
	return fmt.Sprint("job", s.jobs-rng.IntN(min(s.jobs, 3)))
}

// work begins work, and ends it in one way or another.
func (s *soak) work(ctx context.Context, c *etcdclaims.Client, rng *rand.Rand) error {
	w, err := works(c).Begin(ctx, s.job(rng))
	if err != nil {
		return err
	}
	pauseFor(w.Context(), time.Duration(rng.Int64N(int64(10*sec))))
	ending, cancel := context.WithTimeout(context.Background(), 10*sec)
	defer cancel()
	switch rng.IntN(5) {
	case 0:
		return failing(ending, w, errors.New("at random"))
	case 1:
		return failing(ending, w, etcdclaims.Permanent(errors.New("at random")))
	case 2:
		return w.Release(ending)
	}
	return w.Complete(ending)
}

// runWork has a function called for work, or takes its stored result.
func (s *soak) runWork(ctx context.Context, c *etcdclaims.Client, rng *rand.Rand) error {
	fn := func(ctx context.Context) error {
		pauseFor(ctx, time.Duration(rng.Int64N(int64(10*sec))))
		return []error{nil, errors.New("at random"), etcdclaims.Permanent(errors.New("at random")), ctx.Err()}[rng.IntN(4)]
	}
	run := works(c).Run
	switch rng.IntN(3) {
	case 0:
		run = works(c).TryRun
	case 1:
		_, _, err := works(c).Once(ctx, s.job(rng), func(ctx context.Context) ([]byte, error) { return []byte("result"), fn(ctx) })
		return err
	}
	return run(ctx, s.job(rng), func(ctx context.Context, _ *work.Work) error { return fn(ctx) })
}

// retry lets work be begun again that a record shows, and completes or forgets it.
func (s *soak) retry(ctx context.Context, c *etcdclaims.Client, rng *rand.Rand) error {
	for r, err := range works(c).Records(ctx, "job", work.StateFailed, work.StateDead) {
		if err == nil {
			_, err = works(c).Retry(ctx, r.Key)
			s.count("Retry of a record", err)
		}
		if err != nil || rng.IntN(2) == 0 {
			return err
		}
		if rng.IntN(2) == 0 {
			return works(c).Forget(ctx, r.Key)
		}
		return works(c).Run(ctx, r.Key, func(context.Context, *work.Work) error { return nil })
	}
	return nil
}

// slots takes a slot, of as many as the key has.
func (s *soak) slots(ctx context.Context, c *etcdclaims.Client, rng *rand.Rand) error {
	key := slotted(rng.IntN(soakRecords))
	info, err := c.Lookup(ctx, key)
	if err != nil {
		return err
	}
	opts := append(accepted[etcdclaims.AcquireOption](s.option(rng)), etcdclaims.Slots(cmp.Or(info.Slots, 2)))
	return s.hold(rng)(s.acquire(c, rng)(ctx, key, opts...))
}

// share takes a key together with others or alone.
func (s *soak) share(ctx context.Context, c *etcdclaims.Client, rng *rand.Rand) error {
	opts := accepted[etcdclaims.AcquireOption](s.option(rng))
	if rng.IntN(3) > 0 {
		opts = append(opts, etcdclaims.Shared())
	}
	return s.hold(rng)(s.acquire(c, rng)(ctx, shared(rng.IntN(soakRecords)), opts...))
}

// acquire is Acquire or TryAcquire.
func (s *soak) acquire(c *etcdclaims.Client, rng *rand.Rand) func(context.Context, string, ...etcdclaims.AcquireOption) (*etcdclaims.Claim, error) {
	if rng.IntN(2) == 0 {
		return c.TryAcquire
	}
	return c.Acquire
}

func (s *soak) locks(ctx context.Context, k locks.Locks, rng *rand.Rand, key string) error {
	owner := fmt.Sprint("owner", rng.IntN(3))
	_, ok, err := k.TryAcquire(ctx, key, owner, time.Duration(5+rng.IntN(60))*sec)
	if !ok {
		return err
	}
	time.Sleep(time.Duration(rng.Int64N(int64(20 * sec))))
	switch rng.IntN(4) {
	case 0: // forgotten
	case 1:
		_, err = k.ReleaseAll(context.Background(), owner)
	case 2:
		_, _, err = k.Renew(ctx, key, owner, time.Duration(5+rng.IntN(60))*sec)
	default:
		_, err = k.Release(context.Background(), key, owner)
	}
	return err
}

// view reads in every way there is.
func (s *soak) view(ctx context.Context, c *etcdclaims.Client, key string) error {
	_, err := c.Lookup(ctx, key)
	for range c.List(ctx, "") {
	}
	_, oerr := orphansOf(ctx, c, 5)
	for range c.Watch(ctx, "") { // until its context ends
	}
	return errors.Join(err, oerr)
}
