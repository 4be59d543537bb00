package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/item"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// A claimer that neither claims nor reads now waits until it has something to do: else it would spin.
func TestArrivalsLeaveNothingToDoNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const soon = 50 * time.Millisecond
		for _, edge := range []string{"", "m", noEdge} {
			for _, slotBy := range []time.Duration{-soon, soon} {
				for _, due := range []time.Duration{-soon, 0, soon} {
					for used := range 4 {
						for items := range 4 {
							for n := 1; n < 4; n++ {
								var a arrivals
								a.init(&store{cfg: Config{MaxTaken: 3}, keys: item.NewKeys("", item.Spec{})})
								now := clock.Mono()
								a.edge, a.lookBy, a.slotBy = edge, now.Add(time.Second), now.Add(slotBy)
								for i := range used {
									a.used[i+1] = true
								}
								for i := 0; i < items && edge != ""; i++ {
									key := fmt.Sprint("key", i)
									e := &item.Entry{KV: &mvccpb.KeyValue{Key: []byte(key)}, At: key}
									a.items[key] = arrival{e, now.Add(due)}
								}
								got, known := a.claimable(n, now)
								if next := a.next(); known && len(got) == 0 && !next.After(now) {
									t.Errorf("edge %q, slot in %v, %d items due in %v, %d slots used, wants %d: claims nothing, and does not wait",
										edge, slotBy, items, due, used, n)
								}
							}
						}
					}
				}
			}
		}
	})
}
