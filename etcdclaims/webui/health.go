package webui

import (
	"cmp"
	"context"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/internal/explain"
)

// status is how etcd is.
type status struct {
	Passthrough bool
	Err         string
	Since       time.Time
}

// An outage is shown within two seconds: half a second and a beat until the next read, which may take
// somewhat more than the second after which the client takes a request for unanswered.
const statusEvery, statusTimeout = 500 * time.Millisecond, 1050 * time.Millisecond

// status asks for it.
func (q *request) status() status {
	s, fresh := snapshotOf(q, statusTopic, statusEvery, func(ctx context.Context, h *Handler) (status, error) {
		s := h.readStatus(ctx)
		away := s.Err != ""
		if h.away.Swap(away) != away {
			h.snapshots.invalidate(membersTopic)
			h.snapshots.invalidate(doctorTopic)
		}
		return s, nil
	})
	if fresh.Err != nil {
		s.Err = fresh.Err.Error()
	}
	return s
}

// readStatus reads from etcd each time: Client.Health trusts an answer for a second.
func (h *Handler) readStatus(ctx context.Context) status {
	if h.claims.Passthrough() {
		return status{Passthrough: true}
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_, _, err := explain.Epoch(ctx, h.claims.Etcd(), h.claims.Prefix())
	health, unwell := h.claims.Health(ctx)
	if err = cmp.Or(unwell, err); err == nil {
		return status{}
	}
	return status{Err: err.Error(), Since: health.Since}
}

// members asks each member of etcd how it is. It asks nothing else, so it names them also while
// etcd has no leader.
func (q *request) members() ([]doctor.Member, freshness) {
	return snapshotOf(q, membersTopic, examineEvery, func(ctx context.Context, h *Handler) ([]doctor.Member, error) {
		if h.claims.Passthrough() {
			return nil, nil
		}
		e := h.examination()
		e.Ask(ctx)
		return e.Members, nil
	})
}

// healthPage shows how etcd and this process are.
type healthPage struct {
	Client   etcdclaims.Health
	Fresh    freshness
	Stats    etcdclaims.Stats
	Summary  summary
	Members  []doctor.Member
	Doctor   findings
	Examined freshness
	Trial    trial
	CanTry   bool
	Prefix   string
	Owner    string
	Instance string
	Tabs     int
}

func (q *request) health() (any, error) {
	claims := q.h.claims
	members, _ := q.members() // first: in an outage what follows takes all the time that there is
	p := healthPage{
		Members:  members,
		Stats:    claims.Stats(),
		Summary:  q.useClaims("").summary(),
		Prefix:   claims.Prefix(),
		Owner:    claims.Owner(),
		Instance: claims.Instance(),
	}
	q.shows.claims = false
	p.Client, p.Fresh = snapshotOf(q, "health", 5*time.Second, func(ctx context.Context, _ *Handler) (etcdclaims.Health, error) {
		health, _ := claims.Health(ctx) // the status, which is newer, has the error
		health.Margin, health.LastError = health.Margin.Truncate(time.Second), nil
		return health, nil
	})
	found, examined := q.examine()
	p.Doctor, p.Examined = found.visible(q), examined
	p.Trial, p.CanTry, p.Tabs = q.h.trials.latest(), q.can(Operation{Action: actionTrial}), q.h.tabs.count()
	return p, nil
}

// visible returns the findings without those about pages that the user may not view. It
// changes nothing in f, which all tabs share.
func (f findings) visible(q *request) findings {
	may := func(check string) bool {
		page := string(subjects[check])
		return page == "" || q.can(Operation{Action: ActionView, Page: page})
	}
	shown := findings{}
	for _, found := range f.Troubles {
		if !may(found.Check) {
			shown.Hidden += 1 + len(found.Folded)
			continue
		}
		folded := found.Folded
		found.Folded = nil
		for _, consequence := range folded {
			if may(consequence.Check) {
				found.Folded = append(found.Folded, consequence)
			} else {
				shown.Hidden++
			}
		}
		shown.Troubles = append(shown.Troubles, found)
	}
	for _, found := range f.Well {
		if may(found.Check) {
			shown.Well = append(shown.Well, found)
		} else {
			shown.Hidden++
		}
	}
	return shown
}

// examine returns what the checks that only read have found, for all tabs alike.
func (q *request) examine() (findings, freshness) {
	return snapshotOf(q, doctorTopic, examineEvery, func(_ context.Context, h *Handler) (findings, error) {
		if h.claims.Passthrough() {
			return findings{}, nil
		}
		e := h.examination()
		e.Untimed = true // each new duration would reload all tabs
		e.Login(h.claims.Etcd().Username != "", false, 0)
		e.Examine(h.ctx, false) // it may take longer than other readings
		found := newFindings(e.Findings)
		h.sightings.date(found.Troubles)
		return found, nil
	})
}
