package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A caller in line whose transaction was carried out, and whose reply is lost in an outage, gets
// an error that matches ErrUnknown. Its operations are carried out once, however long that lasts.
func TestOpenOutcomeOfAWaiterWithThen(t *testing.T) {
	t.Parallel()
	for name, patience := range map[string]time.Duration{"the session ends": time.Hour, "the context ends": 6 * sec} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			other := w.peer()
			held := tryClaim(t, other, "k")
			tryClaim(t, c, "warm")
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			got := acquiring(ctx, c, "k", etcdclaims.Then(clientv3.OpPut("/effect", "x")))
			time.Sleep(sec)
			host.Inject(claimtest.Fault{On: steps.Advance, LoseReply: true, Saw: func(any) { host.CutReplies() }})
			release(t, held)
			time.AfterFunc(40*sec, host.Heal)
			r := <-got
			if why := ctx.Err(); !errors.Is(r.err, etcdclaims.ErrUnknown) || why != nil && !errors.Is(r.err, why) {
				t.Errorf("got %v, want ErrUnknown, and the end of the context: %v", r.err, why)
			}
			time.Sleep(time.Minute)
			effect, err := w.Raw.Get(context.Background(), "/effect")
			noErr(t, err)
			if len(effect.Kvs) != 1 || effect.Kvs[0].Version != 1 {
				t.Errorf("the operation of one Acquire left %v", effect.Kvs)
			}
			w.Available("k", other)
		})
	}
}

// Acquire without a deadline waits through an outage of etcd, also if that begins while its
// first request is under way.
func TestAcquireInAnOutage(t *testing.T) {
	t.Parallel()
	for _, contended := range []bool{false, true} {
		for _, outage := range []time.Duration{9 * sec, 40 * sec} {
			virtualCase(t, fmt.Sprintf("contended %v, %v", contended, outage), func(t *testing.T, w *world) {
				c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
				tryClaim(t, c, "warm")
				kind := steps.Take
				if contended {
					w.Joined(c, "k")
					kind = steps.Enqueue
				}
				host.Inject(claimtest.Fault{On: kind, LoseReply: true, Saw: func(any) { host.CutReplies() }})
				got := acquiring(context.Background(), c, "k")
				time.Sleep(outage)
				host.Heal()
				cl := w.within(20*sec, got)
				w.Ours(cl)
				release(t, cl)
				w.CloseClean(c)
			})
		}
	}
}
