package webui

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
)

// mostSessions is how many sessions are read: each takes a request.
const mostSessions = 500

// sessionRow is a session of a client.
type sessionRow struct {
	admin.SessionInfo
	Percent int // of the lease that is left
}

// Late reports whether a renewal is late: clients renew when a third has passed.
func (r sessionRow) Late() bool { return r.Percent < 50 }

func (q *request) sessions() (any, error) {
	all, fresh := q.allSessions()
	return listOf(q, all, fresh, mostSessions, func(r sessionRow) sessionRow { return r }), nil
}

// sessionList has the sessions of all clients.
type sessionList []sessionRow

// tally returns how many of the renewals are late.
func (all sessionList) tally() (n int) {
	for _, s := range all {
		if s.Late() {
			n++
		}
	}
	return n
}

// allSessions returns the sessions of all clients, those with late renewals first.
func (q *request) allSessions() (sessionList, freshness) {
	return snapshotOf(q, sessionsTopic, 5*time.Second, func(ctx context.Context, h *Handler) (sessionList, error) {
		found, err := first(mostSessions, admin.Sessions(ctx, h.claims))
		all := make([]sessionRow, len(found))
		for i, s := range found {
			all[i].SessionInfo = s
			if s.TTL > 0 {
				all[i].Percent = int(100 * s.Left / s.TTL)
			}
		}
		slices.SortStableFunc(all, func(a, b sessionRow) int {
			return cmp.Or(cmp.Compare(min(a.Percent/25, 2), min(b.Percent/25, 2)), cmp.Compare(a.Owner, b.Owner))
		})
		return all, err
	})
}
