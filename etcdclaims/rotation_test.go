package etcdclaims_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// manyClaims is more claims than a session verifies at each renewal.
const manyClaims = 3000

// verifications counts requests that verify claims, and notes when each key was last
// verified.
type verifications struct {
	mu       sync.Mutex
	requests int
	last     map[string]time.Time
	longest  time.Duration // from one verification of a key to its next
}

func (v *verifications) saw(req any) {
	r, ok := req.(*pb.TxnRequest)
	if !ok || len(r.Compare) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests++
	now := time.Now()
	for _, cmp := range r.Compare {
		if cmp.Target != pb.Compare_LEASE {
			continue
		}
		_, key, _ := strings.Cut(string(cmp.Key), "/own/")
		if at, ok := v.last[key]; ok {
			v.longest = max(v.longest, now.Sub(at))
		}
		v.last[key] = now
	}
}

// since returns how many keys were verified within so long.
func (v *verifications) since(d time.Duration) (keys int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, at := range v.last {
		if time.Since(at) <= d {
			keys++
		}
	}
	return keys
}

func countVerifications(host *claimtest.Host) *verifications {
	v := &verifications{last: make(map[string]time.Time)}
	host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, Saw: v.saw})
	return v
}

// A claim among many whose key is deleted by hand is lost within TTL + 1 s, alone. If an
// operator forced the release, or it is the youngest, or a restore took more than one,
// it takes no longer than with few claims. The watch is deaf.
func TestOneOfManyClaimsIsTaken(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	virtually(t, func(t *testing.T, w *world) {
		const ttl = 15 * sec
		c, host := w.client(etcdclaims.Config{TTL: ttl})
		operator := w.peer()
		host.Inject(deafness.Kinds()[deafness.EveryEvent])
		keys := numbered("%d", manyClaims)
		claims := claimMany(t, c, keys)
		gone := make(map[int]bool)
		within := func(d time.Duration, numbers ...int) {
			t.Helper()
			time.Sleep(d)
			for _, i := range numbers {
				gone[i] = true
			}
			for i, cl := range claims {
				if lost := cl.Err() != nil; lost != gone[i] {
					t.Fatalf("claim %d after %v: %v", i, d, cl.Err())
				}
			}
		}
		time.Sleep(2*ttl + 3*sec)
		for i := 100; i < 112; i++ { // in all turns, with all but certainty
			w.Server.Delete(t, w.Own(keys[i]))
			within(ttl+sec, i)
		}
		noErr(t, admin.ForceRelease(context.Background(), operator, "200", "by test"))
		within(ttl/3+sec, 200)
		last := []int{}
		for i := manyClaims - 200; i < manyClaims; i++ { // since a snapshot
			w.Server.Delete(t, w.Own(keys[i]))
			last = append(last, i)
		}
		within(ttl/3+sec, last...)
		host.RemoveFaults()
	})
}

// After an outage, even one shorter than a renewal interval, and after a stream of watches
// was interrupted, the next renewal verifies all claims.
func TestManyClaimsAreVerifiedAfterAnOutage(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		const ttl = 15 * sec
		c, host := w.client(etcdclaims.Config{TTL: ttl})
		v := countVerifications(host)
		claims := claimMany(t, c, numbered("%d", manyClaims))
		time.Sleep(2*ttl + 3*sec)
		if n := v.since(ttl / 3); n < manyClaims/4 || n > manyClaims/2 {
			t.Fatalf("%d claims verified in one turn", n)
		}
		for _, wait := range []time.Duration{ttl / 5, ttl / 2} {
			host.Cut()
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			_, err := c.Lookup(ctx, "x")
			wantIs(t, err, context.DeadlineExceeded)
			cancel()
			host.Heal()
			time.Sleep(ttl/3 + sec)
			if n := v.since(ttl/3 + sec); n != manyClaims {
				t.Errorf("%d claims verified after an outage of %v", n, wait)
			}
			time.Sleep(ttl)
		}
		for _, cl := range claims {
			noErr(t, cl.Check())
		}
		noErr(t, claims[0].Renew(t.Context()))
		if n := v.since(time.Millisecond); n != manyClaims {
			t.Errorf("%d claims verified by Renew", n)
		}
		host.RemoveFaults()
	})
}

// The watch is deaf, so the notices of forced releases are read at each renewal: also if another
// session of the client has more of them than one read returns, and if a notice replaces one of
// a key that was claimed together with its own.
func TestNoticesOfManyClaims(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	virtually(t, func(t *testing.T, w *world) {
		const ttl, together = 15 * sec, 3
		c, host := w.client(etcdclaims.Config{TTL: ttl})
		operator := w.peer()
		host.Inject(deafness.Kinds()[deafness.EveryEvent])
		claims := claimMany(t, c, numbered("%d", 1500))
		other := claimMany(t, c, numbered("other %d", 400), etcdclaims.TTL(20*sec))
		var pairs [][]*etcdclaims.Claim
		for _, key := range numbered("pair %d", together) {
			two, err := c.TryAcquireAll(t.Context(), []string{key, key + "'"})
			noErr(t, err)
			pairs = append(pairs, two)
		}
		tryClaim(t, c, "youngest")
		force := func(cl *etcdclaims.Claim) {
			t.Helper()
			noErr(t, admin.ForceRelease(context.Background(), operator, cl.Key(), "by test"))
		}
		soon := func(d time.Duration, cls ...*etcdclaims.Claim) {
			t.Helper()
			time.Sleep(d)
			for _, cl := range cls {
				lossOf(t, cl.Err(), etcdclaims.ReasonDeleted)
			}
		}
		time.Sleep(2*ttl + 3*sec)
		late := host.Inject(claimtest.Fault{On: steps.Unnotify, Times: -1, DelayRequest: 2 * sec})
		for _, two := range pairs {
			force(two[0])
		}
		<-pairs[0][0].Done()
		soon(100*ms, pairs[1][0], pairs[2][0])
		for _, two := range pairs { // the removal of the first notices is under way
			force(two[1])
		}
		late.Remove()
		soon(ttl/3+sec, pairs[0][1], pairs[1][1], pairs[2][1])
		for _, cl := range other {
			force(cl)
		}
		soon(20*sec/3+sec, other...)
		for i := range 4 {
			force(claims[i])
			soon(ttl/3+sec, claims[i])
		}
		host.RemoveFaults()
	})
}
