package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Each test here walks through what one of the systems that this package had to
// match can do, in the way natural to this one. Comments name the other's
// operation.

func TestSeedCycliumWorkClaims(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
		worksWith(work.Config{MaxAttempts: -1}, a, b)
		dedupe := "episode/" + fmt.Sprintf("%0500d", 7) // their dedupe_key has up to 512 bytes

		// acquire(dedupe_key, owner, lease_seconds: 120, work_type): new keys insert.
		w, err := works(a).TryBegin(ctx, dedupe, etcdclaims.TTL(120*time.Second), etcdclaims.Note([]byte("work_type=summary")))
		noErr(t, err)
		// A second acquire is busy, and says by whom.
		_, err = works(b).TryBegin(ctx, dedupe, etcdclaims.TTL(120*time.Second))
		var held *etcdclaims.HeldError
		if !errors.As(err, &held) || held.Info.Owner != "a" || held.Info.Attempt != 1 {
			t.Errorf("busy: %v", err)
		}
		if i := lookUp(t, b, dedupe); string(i.Note) != "work_type=summary" {
			t.Errorf("the work's type: %q", i.Note)
		}
		// The claim row: state, owner, lease_until, claimed_at, attempt, fence.
		r, ok, err := works(b).Record(ctx, dedupe)
		if err != nil || !ok || r.State != work.StateClaimed || r.Owner != "a" || r.Attempt != 1 || r.Fence != w.Fence() || r.Begun.IsZero() {
			t.Errorf("row: %+v, %v", r, err)
		}
		if i := lookUp(t, b, dedupe); i.TTL < 110*time.Second || i.Since.IsZero() {
			t.Errorf("lease: %+v", i)
		}
		// owns?(key, owner, fence).
		if ok, err := b.Owns(ctx, w.Token()); !ok || err != nil {
			t.Errorf("owns?: %v, %v", ok, err)
		}
		// heartbeat: nobody has to call it, three leases later it is still held.
		time.Sleep(6 * time.Minute)
		noErr(t, w.Check())
		// renew(key, owner, seconds).
		noErr(t, w.Renew(ctx))

		// An expired lease: its owner is gone; a claimed row past its lease.
		vanish(t, etcd, b, dedupe)
		time.Sleep(time.Second)
		// heartbeat → not_owner: the task is told and stops before it delivers.
		if w.Context().Err() == nil {
			t.Error("the task was not told")
		}
		// reclaim_expired(limit): lists, changes nothing.
		for range 2 {
			if o, err := orphansOf(ctx, b, 10); err != nil || len(o) != 1 || o[0].Key != dedupe || o[0].State != work.StateOrphaned {
				t.Errorf("reclaim_expired: %+v, %v", o, err)
			}
		}
		// Take-over by one conditional write: of many who race, one wins, the
		// others are busy.
		var wg sync.WaitGroup
		won := make(chan *work.Work, 10)
		for i := range 10 {
			wg.Go(func() {
				w, err := works([]*etcdclaims.Client{a, b}[i%2]).TryBegin(ctx, dedupe)
				switch {
				case err == nil:
					won <- w
				case !errors.Is(err, etcdclaims.ErrHeld):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d took over", len(won))
		}
		w2 := <-won
		// fence: +1 at every acquire, steal and reclaim, so that A → B → A by
		// one name is told apart.
		if w2.Fence() <= w.Fence() || w2.Attempt() != 2 {
			t.Errorf("fence %d after %d, attempt %d", w2.Fence(), w.Fence(), w2.Attempt())
		}
		if ok, _ := b.Owns(ctx, w.Token()); ok {
			t.Error("owns? of the old fence")
		}
		// complete(key, owner) by the old owner → not_owner.
		wantIs(t, w.Complete(ctx), etcdclaims.ErrLost)
		wantIs(t, w.Renew(ctx), etcdclaims.ErrLost)
		// fail(key, owner, detail): finished, with its error_detail, and it can
		// be acquired again.
		noErr(t, failing(ctx, w2, etcdclaims.RetryAfter(errors.New(`{"kind":"timeout"}`), 0)))
		if r, _, _ := works(b).Record(ctx, dedupe); r.State != work.StateFailed || r.Error != `{"kind":"timeout"}` || r.Ended.IsZero() {
			t.Errorf("row: %+v", r)
		}
		time.Sleep(time.Second)
		w3 := tryBegin(t, b, dedupe)
		// complete(key, owner) → ok, and outputs only with it.
		noErr(t, w3.Complete(ctx, clientv3.OpPut("/outputs/7", "delivered")))
		if rawKV(t, etcd, "/outputs/7") == nil {
			t.Error("not delivered")
		}
		_, err = works(a).TryBegin(ctx, dedupe)
		recordOf(t, err, work.ErrDone)
		// gate_* with nothing configured: every call passes through.
		off := newClient(t, nil, etcdclaims.Config{})
		w4 := tryBegin(t, off, dedupe)
		noErr(t, w4.Complete(ctx))
	})
}

// Of Squidie's Executor.Leases, what a single piece of work has: claim,
// heartbeat, complete, fail with the backend's own policy. Queues and their
// payloads are the queue package's.
func TestSeedSquidieLeases(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
		worksWith(work.Config{
			MaxAttempts: 3, Backoff: etcdclaims.ExponentialBackoff(time.Second, 10*time.Second), // base_delay, max_delay
		}, a, b)
		// claim(config, queue, owner, limit: 3, lease_duration_ms): as many as are visible.
		jobs := []string{"q/1", "q/2", "q/3"}
		claims, errs := b.TryAcquireEach(ctx, jobs, etcdclaims.TTL(30*time.Second))
		for i := range jobs {
			noErr(t, errs[i])
		}
		// [] when nothing is visible.
		_, errs = a.TryAcquireEach(ctx, jobs)
		for _, err := range errs {
			wantIs(t, err, etcdclaims.ErrHeld)
		}
		for _, cl := range claims {
			noErr(t, cl.Release(ctx))
		}
		// heartbeat(claim, lease_duration_ms), by hand.
		w, err := works(a).TryBegin(ctx, "q/1", etcdclaims.Manual(), etcdclaims.TTL(30*time.Second))
		noErr(t, err)
		for range 5 {
			time.Sleep(20 * time.Second)
			noErr(t, w.Renew(ctx))
		}
		// complete(claim): removed from delivery.
		noErr(t, w.Complete(ctx))
		_, err = works(b).TryBegin(ctx, "q/1")
		wantIs(t, err, work.ErrDone)
		// Without a heartbeat it is delivered to another.
		w, err = works(a).TryBegin(ctx, "q/2", etcdclaims.Manual(), etcdclaims.TTL(30*time.Second))
		noErr(t, err)
		time.Sleep(32 * time.Second)
		wantIs(t, w.Renew(ctx), etcdclaims.ErrLost)
		// fail(claim, reason) → requeued, and in the end dead_lettered.
		for attempt := 2; attempt <= 3; attempt++ {
			w = tryBegin(t, b, "q/2")
			if w.Attempt() != attempt {
				t.Errorf("attempt %d, want %d", w.Attempt(), attempt)
			}
			noErr(t, failing(ctx, w, errors.New("upstream is down")))
			if attempt < 3 {
				_, err := works(b).TryBegin(ctx, "q/2")
				if r := recordOf(t, err, work.ErrBackoff); time.Until(r.NotBefore) > 10*time.Second {
					t.Errorf("requeued until %v", r.NotBefore)
				}
				time.Sleep(11 * time.Second)
			}
		}
		_, err = works(b).TryBegin(ctx, "q/2")
		recordOf(t, err, work.ErrDead)
	})
}

func TestSeedSochDBAtomicClaims(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		prefix := testetcd.Prefix(t)
		// Queues are isolated: a prefix of their own.
		queue := func(name, owner string) *etcdclaims.Client {
			return newClient(t, etcd, etcdclaims.Config{Prefix: prefix + name + "/", Owner: owner})
		}
		a, b, elsewhere := queue("mail", "a"), queue("mail", "b"), queue("sms", "c")
		// claim(queue, task, owner, lease_ms) → Success(token).
		cl, err := a.TryAcquire(ctx, "task", etcdclaims.TTL(30*time.Second))
		noErr(t, err)
		noErr(t, tryClaim(t, elsewhere, "task").Check())
		// AlreadyClaimed(owner, expires_at).
		_, err = b.TryAcquire(ctx, "task")
		var held *etcdclaims.HeldError
		if !errors.As(err, &held) || held.Info.Owner != "a" || held.Info.Fence != cl.Fence() {
			t.Errorf("AlreadyClaimed: %v", err)
		}
		// The same owner claiming again: a new instance, the older is stale.
		again, err := a.TryAcquire(ctx, "task", etcdclaims.Supersede(), etcdclaims.TTL(30*time.Second))
		noErr(t, err)
		if again.Fence() <= cl.Fence() {
			t.Errorf("instance %d after %d", again.Fence(), cl.Fence())
		}
		wantIs(t, cl.Check(), etcdclaims.ErrLost)
		// release(token), extend(token): refused for a stale instance.
		wantIs(t, cl.Renew(ctx), etcdclaims.ErrLost)
		wantIs(t, cl.Release(ctx), etcdclaims.ErrLost)
		// Or the same claim once more.
		same, err := a.TryAcquire(ctx, "task", etcdclaims.Reentrant())
		noErr(t, err)
		if same.Fence() != again.Fence() {
			t.Errorf("instance %d, not %d", same.Fence(), again.Fence())
		}
		noErr(t, same.Release(ctx))
		// token: is_valid(now), remaining(now), queue, task, owner, instance.
		if again.Check() != nil || again.Remaining() <= 0 || again.Remaining() > 30*time.Second || again.Token() != tokenFor("task", again.Fence()) || again.Owner() != "a" {
			t.Errorf("token %v, remaining %v", again.Token(), again.Remaining())
		}
		// extend(queue, token, more).
		time.Sleep(8 * time.Second)
		before := again.Remaining()
		noErr(t, again.Renew(ctx))
		if again.Remaining() <= before {
			t.Errorf("remaining %v after %v", again.Remaining(), before)
		}
		// is_claimed(queue, task) → (owner, until).
		if i := lookUp(t, b, "task"); !i.Held || i.Owner != "a" || i.TTL <= 0 {
			t.Errorf("is_claimed: %+v", i)
		}
		// active_claims(queue), list_claims(queue).
		if got := listed(t, b, "", nil); len(got) != 1 || got[0] != "task" {
			t.Errorf("list_claims: %v", got)
		}
		noErr(t, again.Release(ctx))
		// One winner among any number of concurrent claimers.
		var wg sync.WaitGroup
		won := make(chan *etcdclaims.Claim, 50)
		for i := range 50 {
			wg.Go(func() {
				if cl, err := []*etcdclaims.Client{a, b}[i%2].TryAcquire(ctx, "race"); err == nil {
					won <- cl
				} else if !errors.Is(err, etcdclaims.ErrHeld) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d winners", len(won))
		}
		noErr(t, (<-won).Release(ctx))
		// TookOver(previous owner, token).
		w := tryBegin(t, a, "work")
		vanish(t, etcd, b, "work")
		over := tryBegin(t, b, "work")
		if r, ok := over.Previous(); !ok || r.Owner != "a" || r.Fence != w.Fence() || r.State != work.StateOrphaned {
			t.Errorf("TookOver: %+v", r)
		}
		// cleanup_expired() → count: etcd does that, nobody has to.
		manual, err := a.TryAcquire(ctx, "forgotten", etcdclaims.Manual(), etcdclaims.TTL(10*time.Second))
		noErr(t, err)
		time.Sleep(13 * time.Second)
		wantIs(t, manual.Check(), etcdclaims.ErrLost)
		tryClaim(t, b, "forgotten")
		// At most so many extensions: a longest time instead.
		hung, err := a.TryAcquire(ctx, "hung", etcdclaims.MaxHold(time.Minute))
		noErr(t, err)
		time.Sleep(61 * time.Second)
		wantIs(t, hung.Check(), etcdclaims.ErrLost)
		// stats: attempts, successes, contentions, takeovers, expirations.
		if s := b.Stats(); s.Attempts == 0 || s.Acquired == 0 || s.Contended == 0 || works(b).Stats().TookOver != 1 {
			t.Errorf("stats %+v", s)
		}
		if s := a.Stats(); s.Lost[etcdclaims.ReasonExpired] != 1 || s.Lost[etcdclaims.ReasonMaxHold] != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Of Bedrock's JobQueue.Lease, what a lease itself has; items, their order and
// their visibility are the queue package's.
func TestSeedBedrockLease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, server *claimtest.Server) {
		ctx, etcd := t.Context(), server.Etcd(t)
		a, b, _ := twoOwners(t, etcd, etcdclaims.Config{})
		worksWith(work.Config{MaxAttempts: 2, Backoff: func(int) time.Duration { return time.Minute }}, a, b)
		// lease: id, item, holder, obtained_at, expires_at (30 s).
		w, err := works(a).TryBegin(ctx, "item/1", etcdclaims.TTL(30*time.Second))
		noErr(t, err)
		if i := lookUp(t, b, "item/1"); w.ID() == "" || i.Claim != w.ID() || i.Owner != "a" || i.Since.IsZero() || i.TTL > 30*time.Second {
			t.Errorf("lease: %+v", i)
		}
		// expired?(now), remaining_ms(now), 0 when expired.
		if w.Check() != nil || w.Remaining() <= 0 {
			t.Errorf("remaining %v", w.Remaining())
		}
		// An extender keeps long jobs leased.
		time.Sleep(5 * time.Minute)
		noErr(t, w.Check())
		// An action hook runs inside the completing transaction.
		noErr(t, w.Complete(ctx, clientv3.OpPut("/hook", "done")))
		if rawKV(t, etcd, "/hook") == nil {
			t.Error("the hook was not carried out")
		}
		if w.Remaining() != 0 {
			t.Errorf("remaining %v", w.Remaining())
		}
		// extend fails with expired, not found, mismatch.
		late, err := works(a).TryBegin(ctx, "item/2", etcdclaims.Manual(), etcdclaims.TTL(30*time.Second))
		noErr(t, err)
		time.Sleep(33 * time.Second)
		wantIs(t, late.Renew(ctx), etcdclaims.ErrLost)
		if late.Remaining() != 0 {
			t.Errorf("remaining %v", late.Remaining())
		}
		// It reappears by itself, for whoever comes: dequeue by another.
		w = tryBegin(t, b, "item/2")
		if w.Attempt() != 2 {
			t.Errorf("attempt %d", w.Attempt())
		}
		wantIs(t, late.Complete(ctx), etcdclaims.ErrLost)
		// snooze(ms), here by giving back; requeue with back-off; dead letter
		// after max retries.
		noErr(t, w.Release(ctx))
		w = tryBegin(t, b, "item/2")
		noErr(t, failing(ctx, w, errors.New("crashed")))
		_, err = works(a).TryBegin(ctx, "item/2")
		wantIs(t, err, work.ErrDead)
		// discard.
		noErr(t, failing(ctx, tryBegin(t, a, "item/3"), etcdclaims.Permanent(errors.New("no handler"))))
		_, err = works(a).TryBegin(ctx, "item/3")
		wantIs(t, err, work.ErrDead)
		// A queue lease keeps consumers from fighting over one queue.
		noErr(t, a.TryRun(ctx, "queue", func(context.Context) error {
			wantIs(t, b.TryRun(ctx, "queue", func(context.Context) error { return nil }), etcdclaims.ErrHeld)
			return nil
		}))
		// A job past its timeout or crashed is retried.
		wantIs(t, a.TryRun(ctx, "job", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, etcdclaims.MaxHold(10*time.Second)), context.Canceled)
		tryClaim(t, b, "job")
	})
}
