package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/steps"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// slow is a TTL whose renewals, at 20 s, leave time to do things between them.
const slow = time.Minute

// restoreUnseen restores etcd so that no client can tell: revisions have passed
// what they have seen before any of them asks again.
func (w *world) restoreUnseen(from claimtest.Snapshot, writes int) {
	w.Helper()
	w.Server.Restore(w.T, from, 0)
	w.noise(writes)
}

// A claim that was given up, and a place in line, come back with a snapshot, on
// a lease that their client goes on renewing. The client removes them as soon as
// it hears that there may have been a restore, and nothing else.
func TestRestoreBringsBackWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	ways := map[string]struct {
		restore func(w *world, from claimtest.Snapshot)
		told    bool // by etcd itself
	}{
		"the epoch is raised": {func(w *world, from claimtest.Snapshot) { w.restoreUnseen(from, 100) }, false},
		"revisions go on":     {func(w *world, from claimtest.Snapshot) { w.Server.Restore(w.T, from, 1_000_000) }, true},
	}
	for name, way := range ways {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			c, host := w.client(etcdclaims.Config{TTL: slow})
			// Keys that were claimed together have one id, and one stays.
			both, err := c.TryAcquireAll(ctx, []string{"both", "stays"})
			if err != nil {
				t.Fatal(err)
			}
			alone := tryClaim(t, c, "alone", etcdclaims.Note([]byte("n")))
			w.rawPut("held", "somebody's")
			waiting, leave := context.WithCancel(ctx)
			left := acquiring(waiting, c, "held")
			stays := acquiring(ctx, c, "held")
			time.Sleep(sec)
			snapshot := w.Server.Snapshot(t)
			release(t, both[0])
			release(t, alone)
			leave()
			<-left
			time.Sleep(sec)
			host.Inject(claimtest.Fault{On: steps.TimeToLive, Code: codes.Internal}) // is asked again
			way.restore(w, snapshot)
			if !way.told { // else it is removed at once
				if w.get("own/both") == "" || w.get("own/alone") == "" || w.places() != 2 {
					w.Fatalf("not all came back: %v", w.All())
				}
				w.Server.RaiseEpoch(t, w.Prefix)
			}
			time.Sleep(25 * sec)
			other := w.peer()
			for _, key := range []string{"both", "alone"} {
				w.Available(key, other)
			}
			if v := w.get("note/alone"); v != "" {
				t.Errorf("left: a note, %s", v)
			}
			if n := w.places(); n != 1 {
				t.Errorf("%d places in line, want 1", n)
			}
			if way.told {
				w.Ours(both[1])
			}
			w.Server.Delete(t, w.Own("held"))
			w.Ours(w.within(sec, stays))
			if n := c.Stats().Sessions; n != 1 {
				t.Errorf("%d sessions, want the one", n)
			}
			time.Sleep(slow) // what the epoch has ended is held for so long
			w.CloseClean(c, other)
		})
	}
}

// rawPut makes the key held by something that is no client.
func (w *world) rawPut(key, value string) {
	w.Helper()
	if _, err := w.Raw.Put(context.Background(), w.Own(key), value); err != nil {
		w.Fatal(err)
	}
}

// A claim that the raised epoch ended is held until its handler can be taken to
// have stopped, even if it cannot be moved to another lease at first.
func TestRaisedEpochFreesNothingAtOnce(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, c, "k")
		other := w.peer()
		host.Inject(claimtest.Fault{On: claimtest.Grant, Times: 4, Err: status.Error(codes.ResourceExhausted, "injected")})
		w.Server.RaiseEpoch(t, w.Prefix)
		gone := w.deletion(w.Own("k"))
		begin := time.Now()
		time.Sleep(14 * sec)
		if _, err := other.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("14 s later: %v, want ErrHeld", err)
		}
		if d := (<-gone).Sub(begin); d < 15*sec {
			t.Errorf("freed after %v", d)
		}
	})
}

// Work whose end is yet to be recorded, for a caller that gave up, is no ghost
// to whoever cleans up after what may have been a restore.
func TestSweepLeavesWorkThatIsBeingEnded(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: slow})
		wk := tryBegin(t, c, "k")
		host.Inject(claimtest.Fault{On: claimtest.Ending, Times: 4, LoseRequest: true})
		ctx, cancel := context.WithTimeout(context.Background(), sec)
		defer cancel()
		if err := wk.Complete(ctx); !errors.Is(err, etcdclaims.ErrUnknown) {
			t.Errorf("completing: %v, want ErrUnknown", err)
		}
		end := refuseWatches(host, refusals["no leader"])
		time.Sleep(sec)
		end()
		time.Sleep(30 * sec)
		if _, err := works(c).TryBegin(context.Background(), "k"); !errors.Is(err, work.ErrDone) {
			t.Errorf("beginning again: %v, want ErrDone", err)
		}
		w.CloseClean(c)
	})
}

// What frees a key after a restore can stand at a revision that the waiter's
// watches have passed: it has its turn when the epoch is raised.
func TestRestoreDoesNotEndTheWaiting(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, _ := w.client(etcdclaims.Config{TTL: slow})
		w.rawPut("k", "somebody's")
		done := acquiring(context.Background(), c, "k")
		time.Sleep(sec)
		snapshot := w.Server.Snapshot(t)
		w.noise(100)
		w.rawPut("k", "somebody else's") // which the waiter goes on from
		time.Sleep(sec)
		w.Server.Restore(t, snapshot, 0)
		w.Server.Delete(t, w.Own("k"))
		w.noise(200)
		time.Sleep(sec)
		select {
		case <-done:
			w.Fatal("the waiter has not missed it")
		default:
		}
		w.Server.RaiseEpoch(t, w.Prefix)
		w.Ours(w.within(21*sec, done))
		w.CloseClean(c)
	})
}

// The news of a revoked lease come as fast after a restore as before, although
// the watch for them has passed the revision at which they stand.
func TestRestoreDoesNotDelayNewsOfTheLease(t *testing.T) {
	t.Parallel()
	for _, unread := range []bool{false, true} {
		virtualCase(t, fmt.Sprintf("what it missed cannot be read at first %v", unread), func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: slow})
			tryClaim(t, c, "warm")
			snapshot := w.Server.Snapshot(t)
			w.noise(100)
			if _, err := w.Raw.Put(context.Background(), w.Prefix+"session/"+c.Instance()+"/news", "x"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(sec)
			w.restoreUnseen(snapshot, 20)
			w.Server.RaiseEpoch(t, w.Prefix)
			if unread {
				host.Inject(claimtest.Fault{On: claimtest.Range, Times: 2, Code: codes.Internal})
			}
			time.Sleep(40 * sec)
			cl := tryClaim(t, c, "k")
			e := follow(cl)
			begin := time.Now()
			w.Server.Revoke(t, w.Own("k"))
			if d := (<-e.done).Sub(begin); d > 250*time.Millisecond {
				t.Errorf("noticed after %v", d)
			}
			lossOf(t, cl.Err(), etcdclaims.ReasonRevoked)
		})
	}
}

// Who watches is told that something may be missing, and what happens from then
// on, whether or not the client claims anything itself.
func TestRestoreDoesNotSilenceWatch(t *testing.T) {
	t.Parallel()
	for _, claims := range []bool{true, false} {
		for _, seen := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("claims %v, sees the revision go back %v", claims, seen), func(t *testing.T, w *world) {
				c, _ := w.client(etcdclaims.Config{TTL: slow})
				if claims {
					tryClaim(t, c, "warm")
				}
				snapshot := w.Server.Snapshot(t)
				if seen {
					w.noise(50)
				}
				events := startWatch(t, c, "k")
				events.next(t, etcdclaims.Synced, "")
				w.noise(100)
				w.rawPut("k", "somebody's")
				events.next(t, etcdclaims.Claimed, "k")
				if seen {
					w.Server.Restore(t, snapshot, 0)
					time.Sleep(30 * sec)
				} else {
					w.restoreUnseen(snapshot, 20)
				}
				w.Server.RaiseEpoch(t, w.Prefix)
				events.next(t, etcdclaims.Resynced, "")
				events.next(t, etcdclaims.Freed, "k")
				time.Sleep(30 * sec)
				begin := time.Now()
				tryClaim(t, w.peer(), "k2")
				for (<-events.events).Info.Key != "k2" { // told again that it may miss something
					if time.Since(begin) > sec {
						t.Fatalf("told after %v", time.Since(begin))
					}
				}
			})
		}
	}
}

// A reply that was on its way while etcd was restored, and the epoch raised,
// does not make the client believe in another restore. Neither does the reply with
// which a request proves that the revision went back.
func TestReplyFromBeforeTheEpochWasRaised(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]struct {
		fault claimtest.Fault
		noise int // how many revisions follow on the new claim: 100 lead past what was seen before
	}{
		"reply": {claimtest.Fault{On: claimtest.Verify, DelayReply: 2 * sec}, 0},
		"proof": {claimtest.Fault{On: "deleterange", DelayReply: 1500 * ms}, 100},
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			snapshot := w.Server.Snapshot(t)
			w.noise(100)
			tryClaim(t, c, "before")
			w.Server.Restore(t, snapshot, 0)
			if _, err := c.Lookup(ctx, "k"); !errors.Is(err, etcdclaims.ErrRewound) {
				t.Errorf("looking up: %v, want ErrRewound", err)
			}
			met := host.Inject(late.fault)
			looked := make(chan error, 1)
			go func() { _, err := c.Lookup(ctx, "k"); looked <- err }()
			time.Sleep(sec)
			if _, err := c.TryAcquire(ctx, "k"); !errors.Is(err, etcdclaims.ErrRewound) {
				t.Errorf("acquiring: %v, want ErrRewound", err)
			}
			w.Server.RaiseEpoch(t, w.Prefix)
			cl := tryClaim(t, c, "k")
			w.noise(late.noise)
			tryClaim(t, c, "meanwhile")
			if met.Hits() != 1 || len(looked) > 0 {
				t.Errorf("it was not late: %d requests met", met.Hits())
			}
			if err := <-looked; err != nil {
				t.Errorf("looking up: %v", err)
			}
			tryClaim(t, c, "after")
			time.Sleep(20 * sec)
			tryClaim(t, c, "later")
			w.Ours(cl)
			w.CloseClean(c)
		})
	}
}

// A place in line of a caller with Shared belongs to that caller: a client that looks for what
// a restore brought back leaves it where it is, and so the caller keeps its turn.
func TestPlaceOfASharedWaiterIsNoGhost(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, other := w.peer(), w.peer()
		b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, b, "warm")
		held := tryClaim(t, a, "k")
		first := acquiring(context.Background(), b, "k", etcdclaims.Shared())
		time.Sleep(sec)
		second := acquiring(context.Background(), other, "k")
		time.Sleep(sec)
		end := refuseWatches(host, refusals["no leader"])
		time.Sleep(sec)
		end()
		time.Sleep(sec)
		release(t, held)
		release(t, w.within(5*sec, first))
		release(t, w.within(5*sec, second))
	})
}
