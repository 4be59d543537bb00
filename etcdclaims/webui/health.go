package webui

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// healthPage shows how etcd and this process are.
type healthPage struct {
	Client   clientHealth
	Fresh    freshness
	Stats    etcdclaims.Stats
	Summary  summary
	Doctor   examined
	Examined freshness
	Trial    trial
	CanTry   bool
	Prefix   string
	Owner    string
	Instance string
	Tabs     int
}

type clientHealth struct {
	etcdclaims.Health
	LastError string
}

// memberTimeout is how long a member may take to answer.
const memberTimeout = time.Second

func (q *request) health() (any, error) {
	claims := q.h.claims
	p := healthPage{
		Stats:    claims.Stats(),
		Summary:  q.useClaims("").summary(),
		Prefix:   claims.Prefix(),
		Owner:    claims.Owner(),
		Instance: claims.Instance(),
	}
	q.shows.claims = false
	p.Client, p.Fresh = snapshotOf(q, "health", 5*time.Second, func(ctx context.Context, h *Handler) (clientHealth, error) {
		var c clientHealth
		health, err := claims.Health(ctx)
		c.Health, c.LastError = health, text(err)
		c.Margin = c.Margin.Truncate(time.Second)
		c.Health.LastError = nil
		return c, nil
	})
	p.Doctor, p.Examined = q.examine()
	p.Doctor.findings = p.Doctor.visible(q)
	p.Trial, p.CanTry, p.Tabs = q.h.trials.latest(), q.can(Operation{Action: actionTrial}), q.h.tabs.count()
	return p, nil
}
