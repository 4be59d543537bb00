package txn_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Calls share a round trip and a ticket if they are on one lease. Those on another lease have
// another ticket, whose void ends with that lease, and too many leases need another round trip.
func TestTicketsOfLeases(t *testing.T) {
	t.Parallel()
	for leases, want := range map[int]int{1: 1, 2: 1, 16: 1, 17: 2, 32: 2} {
		batching(t, func(t *testing.T, e *etcd, b *txn.Batcher, _ context.CancelFunc) {
			requests, tickets := make([]txn.Request, 64), make([]string, 64)
			for i := range requests {
				requests[i] = get(fmt.Sprint(i))
				requests[i].Ticket, requests[i].TicketLease = &tickets[i], clientv3.LeaseID(i%leases)
			}
			noErrors(t, together(t, b, requests...))
			if got := len(e.sent()) - 2; got != want {
				t.Errorf("%d leases: %d round trips, want %d", leases, got, want)
			}
			of := map[string]int{}
			for i, ticket := range tickets {
				if lease, seen := of[ticket]; seen && lease != i%leases {
					t.Errorf("leases %d and %d share a ticket", lease, i%leases)
				}
				of[ticket] = i % leases
			}
			if len(of) != leases {
				t.Errorf("%d leases have %d tickets", leases, len(of))
			}
		})
	}
}
