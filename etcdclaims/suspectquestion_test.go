package etcdclaims_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A client that lives keeps its keys, also if more clients ask than one transaction of
// this etcd may have operations.
func TestAnswersBeyondMaxTxnOps(t *testing.T) {
	testetcd.SkipRace(t)
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		var held []*etcdclaims.Claim
		for i := range 24 {
			key := fmt.Sprintf("k%d", i)
			held = append(held, tryClaim(t, a, key, etcdclaims.Suspectable()))
			acquiring(t.Context(), w.peer(), key, etcdclaims.Suspectable())
		}
		time.Sleep(5 * sec)
		for _, cl := range held {
			noErr(t, cl.Check())
		}
	}, testclaims.MaxTxnOps(20))
}

// A question is withdrawn when nobody waits any more, also if none of its replies arrived.
func TestQuestionWithdrawnWithoutReply(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
		b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, a, "k", etcdclaims.Suspectable())
		tryClaim(t, b, "other") // keeps the session
		ahost.Kill()
		bhost.Inject(claimtest.Fault{On: steps.Ask, Times: -1, LoseReply: true})
		ctx, cancel := context.WithTimeout(context.Background(), 3*sec)
		defer cancel()
		if _, err := b.Acquire(ctx, "k", etcdclaims.Suspectable()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if n := w.Count("/ask/"); n != 1 {
			t.Errorf("%d questions", n)
		}
		bhost.RemoveFaults()
		time.Sleep(10 * sec)
		if n := w.Count("/ask/"); n != 0 {
			t.Errorf("%d questions are left", n)
		}
	})
}

// A notice of a suspicion names the time that passed without an answer, which is longer
// after an outage. The holder may find out by a renewal before it has the notice.
func TestSuspicionNamesItsTime(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, ahost := w.client(etcdclaims.Config{TTL: 15 * sec})
		b, bhost := w.client(etcdclaims.Config{TTL: 15 * sec})
		held := tryClaim(t, a, "k", etcdclaims.Suspectable())
		waits := w.waitingFor(b, "k")[0]
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		notices := w.Raw.Watch(ctx, w.Prefix+"session/"+a.Instance()+"/evict/", clientv3.WithPrefix(), clientv3.WithFilterDelete())
		ahost.Cut()
		bhost.Cut()
		time.Sleep(2 * sec)
		bhost.Heal()
		noErr(t, (<-waits).err)
		if notice := string((<-notices).Events[0].Kv.Value); !strings.Contains(notice, "no answer for 3") {
			t.Error(notice)
		}
		ahost.Heal()
		<-held.Done()
		if err := held.Err(); !errors.Is(err, etcdclaims.ErrLost) || !strings.Contains(err.Error(), "superseded") {
			t.Error(err)
		}
	})
}
