package webui

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// mostSessions is how many sessions are read: each takes a request.
const mostSessions = 500

// sessionsPage lists the sessions of all clients.
type sessionsPage struct {
	Sessions []sessionRow
	Pager    pager
	More     bool
	Fresh    Fresh
}

type sessionRow struct {
	etcdclaims.SessionInfo
	Percent int // of the lease that is left
}

// Late reports whether a renewal is late: clients renew when a third has passed.
func (r sessionRow) Late() bool { return r.Percent < 50 }

func (q *request) sessions() (any, error) {
	all, fresh := snapshotOf(q, "sessions", 5*time.Second, func(ctx context.Context, h *Handler) ([]sessionRow, error) {
		found, err := first(mostSessions, h.claims.Sessions(ctx))
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
	p := sessionsPage{Fresh: fresh, More: len(all) == mostSessions}
	p.Sessions, p.Pager = paged(q, all)
	return p, nil
}

// healthPage shows how etcd and this process are.
type healthPage struct {
	Client   clientHealth
	Fresh    Fresh
	Stats    etcdclaims.Stats
	Members  []member
	Summary  summary
	Prefix   string
	Owner    string
	Instance string
	Tabs     int
}

type clientHealth struct {
	etcdclaims.Health
	LastError string
	members   []member
}

// member is a member of the etcd cluster.
type member struct {
	Endpoint, Version, Err string
	Leader                 bool
	Size, Quota            int64
}

const memberTimeout = time.Second

func (q *request) health() (any, error) {
	claims := q.h.claims
	p := healthPage{Stats: claims.Stats(), Summary: q.useClaims("").summary(), Prefix: claims.Prefix(), Owner: claims.Owner(), Instance: claims.Instance()}
	q.shows.claims = false
	p.Client, p.Fresh = snapshotOf(q, "health", 5*time.Second, func(ctx context.Context, h *Handler) (clientHealth, error) {
		var c clientHealth
		health, err := claims.Health(ctx)
		c.Health, c.LastError = health, text(err)
		c.Margin = c.Margin.Truncate(time.Second)
		c.Health.LastError = nil
		if claims.Passthrough() {
			return c, nil
		}
		for _, endpoint := range claims.Etcd().Endpoints() {
			c.members = append(c.members, h.member(ctx, endpoint))
		}
		return c, nil
	})
	p.Members, p.Tabs = p.Client.members, q.h.tabs.count()
	return p, nil
}

func (h *Handler) member(ctx context.Context, endpoint string) member {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	m := member{Endpoint: endpoint}
	status, err := h.claims.Etcd().Status(ctx, endpoint)
	if err != nil {
		m.Err = err.Error()
		return m
	}
	m.Version, m.Size, m.Quota = status.Version, status.DbSize>>20, status.DbSizeQuota>>20
	m.Leader = status.Leader == status.Header.MemberId
	return m
}
