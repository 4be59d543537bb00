package webui

import (
	"context"
	"fmt"
	"html/template"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// healthPage shows how etcd and this process are.
type healthPage struct {
	Client   clientHealth
	Fresh    Fresh
	Stats    etcdclaims.Stats
	Members  []member
	Findings []finding
	Summary  summary
	Prefix   string
	Owner    string
	Instance string
	Tabs     int
}

// finding is something that a person should look at.
type finding struct {
	Level string // "bad" or "warn"
	Text  string
	Page  template.URL // where it is shown; empty if nowhere
}

type clientHealth struct {
	etcdclaims.Health
	LastError string
	members   []member
	alarms    []string
}

// member is a member of the etcd cluster.
type member struct {
	Endpoint, Version, Err string
	Leader, NoLeader       bool
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
		if alarms, err := claims.Etcd().AlarmList(ctx); err == nil { // it may need a role
			for _, a := range alarms.Alarms {
				c.alarms = append(c.alarms, fmt.Sprintf("member %x has the alarm %s: see claimctl doctor", a.MemberID, a.Alarm))
			}
		}
		return c, nil
	})
	p.Members, p.Tabs = p.Client.members, q.h.tabs.count()
	if !claims.Passthrough() {
		p.Findings = q.findings(p)
	}
	return p, nil
}

// findings collects what the other pages and the members show to be wrong. All of it is
// read for those pages, too.
func (q *request) findings(p healthPage) (all []finding) {
	add := func(n int, level, what string, page template.URL) {
		if n > 0 {
			all = append(all, finding{level, fmt.Sprintf("%d %s", n, what), page})
		}
	}
	for _, alarm := range p.Client.alarms {
		all = append(all, finding{"bad", alarm, ""})
	}
	for _, m := range p.Members {
		switch {
		case m.NoLeader:
			all = append(all, finding{"bad", m.Endpoint + " has no leader: bring back a majority of the members", ""})
		case m.Quota > 0 && m.Size*10 > m.Quota*8:
			all = append(all, finding{"warn", fmt.Sprintf("the database of %s is at %d %% of its quota: see claimctl space", m.Endpoint, m.Size*100/m.Quota), ""})
		}
	}
	add(p.Summary.Zombies, "bad", "keys held by zombies: their handlers did not stop when they had to", "claims?kind=zombie")
	add(p.Summary.Unleased, "warn", "keys without a lease, which never expire: another program wrote them", "claims?kind=unleased")
	late := 0
	sessions, _ := q.allSessions()
	for _, s := range sessions {
		if s.Late() {
			late++
		}
	}
	add(late, "warn", "sessions whose renewal is late", "sessions")
	states, _ := q.workStates()
	add(states[etcdclaims.StateOrphaned], "warn", "orphaned records of work: their owners died", query("work", "state", etcdclaims.StateOrphaned))
	add(states[etcdclaims.StateDead], "warn", "dead records of work, which failed too often or for good", query("work", "state", etcdclaims.StateDead))
	return append(all, q.serviceFindings()...)
}

// serviceFindings are those of schedules and queues.
func (q *request) serviceFindings() (all []finding) {
	jobs, _ := q.jobs()
	for _, g := range jobs.groups {
		if g.Jobs > 0 && g.Unowned {
			all = append(all, finding{"bad", fmt.Sprintf("no process runs group %q, which has %s", g.Name, count(g.Jobs, "job", "jobs")), "schedules"})
		}
		if g.Paused > 0 {
			all = append(all, finding{"warn", fmt.Sprintf("group %q has %s", g.Name, count(g.Paused, "paused job", "paused jobs")), "schedules"})
		}
	}
	queues, _ := q.allQueues()
	for _, row := range queues {
		if row.Dead > 0 {
			all = append(all, finding{"warn", fmt.Sprintf("queue %q has %s", row.Name, count(row.Dead, "dead letter", "dead letters")), query("queue", "queue", row.Name)})
		}
		if !row.Paused.At.IsZero() {
			all = append(all, finding{"warn", fmt.Sprintf("queue %q is paused", row.Name), query("queue", "queue", row.Name)})
		}
	}
	return all
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
	m.Leader, m.NoLeader = status.Leader == status.Header.MemberId, status.Leader == 0
	return m
}
