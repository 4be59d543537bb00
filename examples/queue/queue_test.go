package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const story = `worker-1 enqueued 30 of 30 orders
worker-2 enqueued 0 of 30 orders
dead letter order-13 after 1 attempt: failed: no such street
30 orders: 29 shipped, 1 dead letters
`

func TestEachOrderIsShippedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := run(t.Context(), claimtest.Start(t).Etcd(t), "/queue/", &out); err != nil || out.String() != story {
			t.Errorf("%v, got\n%swant\n%s", err, &out, story)
		}
	})
}
