package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// reading is what is held and who waits, at one time.
type reading struct {
	held   []etcdclaims.Info
	more   bool // keys are held than were read
	places []place
	err    error // of the places
	gone   map[clientv3.LeaseID]bool
	unread int // leases
}

func (e *Examination) read(ctx context.Context) (r reading, err error) {
	if r.held, r.more, err = explain.First(e.Claims.List(ctx, ""), e.Limit); err != nil {
		return r, err
	}
	r.places, r.err = e.places(ctx)
	leases := map[clientv3.LeaseID]bool{}
	for _, i := range r.held {
		leases[i.Lease] = true
	}
	for _, p := range r.places {
		leases[p.lease] = true
	}
	r.gone, r.unread = e.goneLeases(ctx, leases)
	return r, nil
}

// suspects returns what looks wrong in a reading.
func (e *Examination) suspects(r reading) (all []suspect) {
	for _, i := range r.held {
		id := fmt.Sprint(i.Key, i.Fence, i.Lease)
		switch {
		case i.Newer:
		case r.gone[i.Lease]:
			all = append(all, suspect{"ghost", id, i.Key})
		case i.Kind == "zombie":
			all = append(all, suspect{"zombie", id, i.Key})
		}
	}
	return append(all, e.lineSuspects(r)...)
}

// claims examines the held claims and those who wait.
func (e *Examination) claims(ctx context.Context) {
	r, err := e.read(ctx)
	if e.failed(Error, "claims", "cannot be listed", err) {
		return
	}
	found, unconfirmed := confirm(ctx, e.suspects(r), func(ctx context.Context) ([]suspect, error) {
		again, err := e.read(ctx)
		if err = cmp.Or(err, again.err); err == nil && again.more {
			err = fmt.Errorf("more than %s held", count(e.Limit, "key is", "keys are"))
		}
		return e.suspects(again), err
	})
	e.held(r, found, unconfirmed)
	if !e.failed(Error, "lines", "cannot be read", r.err) {
		e.lines(r, found, unconfirmed)
	}
}

// held reports the holders that are no claims any more.
func (e *Examination) held(r reading, found []suspect, unconfirmed string) {
	var permanent, newer []string
	fences := map[string]int64{}
	for _, i := range r.held {
		fences[i.Key] = i.Fence
		switch {
		case i.Kind == "slots" || i.Kind == "shared": // the record of a key whose claims have keys of their own
		case i.Newer:
			newer = append(newer, i.Key)
		case i.Lease == clientv3.NoLease:
			permanent = append(permanent, i.Key)
		}
	}
	more, unread := "", unreadLeases(r.unread)
	if r.more {
		more, unread = " or more", others
	}
	e.judge("claims", unread, "%s held%s", count(len(r.held), "key is", "keys are"), more)
	warn := func(keys []string, remedy, detail, suffix string, release bool) {
		if len(keys) == 0 {
			return
		}
		commands := e.claimctl(" explain%s", explain.Arguments(keys[0]))
		if release {
			commands = append(commands, e.claimctl(" release --fence %d%s", fences[keys[0]], explain.Arguments(keys[0]))...)
		}
		e.Add(Warning, "claims", remedy, "%s: %s%s", detail, several(keys), suffix).Commands = commands
	}
	warn(namesOf(found, "zombie"), "look at the handlers: they did not stop when they had to; the keys are free when their leases end",
		"zombies", unconfirmed, false)
	warn(permanent, "another program wrote them; release a key if no program needs it",
		"without a lease, so that they never expire", "", true)
	warn(newer, "examine them with a claimctl of that version", "written by a newer version", "", false)
	warn(namesOf(found, "ghost"), "see that their owners have ended, and release the keys: etcd should have deleted them with the lease",
		"ghosts, whose lease is gone", unconfirmed, true)
}

// sessions finds sessions whose renewal is late: clients renew when a third of the TTL has
// passed. One that is late only once had a slow request.
func (e *Examination) sessions(ctx context.Context) {
	leases := map[string]clientv3.LeaseID{} // by their texts
	var suspects []suspect
	of := source{"sessions", Error, "cannot be listed", e.Leases}
	asked, unread, well := each(ctx, e, of, admin.Sessions(ctx, e.Claims), func(s admin.SessionInfo) error {
		if id := fmt.Sprint(s.Lease); 2*s.Left < s.TTL {
			leases[id] = s.Lease
			suspects = append(suspects, suspect{"late", id, s.Owner})
		}
		return nil
	})
	if !well {
		return
	}
	found, unconfirmed := confirmEach(ctx, suspects, func(ctx context.Context, s suspect) (bool, error) {
		lease, err := explain.LiveLease(ctx, e.etcd(), leases[s.id])
		return lease != nil && 2*lease.TTL < lease.GrantedTTL, err
	})
	switch {
	case len(found) > 0:
		owners := namesOf(found, "late")
		e.Add(Warning, "sessions", "look at the processes and at their connections to etcd: their claims end with their leases",
			"the renewals of %d of the %d that were read are overdue: %s%s", len(found), asked, several(owners), unconfirmed,
		).Commands = e.claimctl(" ls --held-by %s", explain.Quoted(owners[0]))
	case unread != "":
		e.well("sessions", "the first %d, none renews late", asked)
	default:
		e.well("sessions", "%d, none renews late", asked)
	}
}

// start is when a session began, by the clock of its process. Revisions have the true order.
type start struct {
	owner    string
	revision int64
	at       time.Time
}

// clocks compares the clocks of processes by the times at which their sessions began.
func (e *Examination) clocks(ctx context.Context) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	root := e.Claims.Prefix() + "session/"
	resp, err := e.etcd().Get(ctx, root, clientv3.WithPrefix(), clientv3.WithLimit(int64(e.Limit)))
	if e.failed(Note, "clocks", "the sessions cannot be read", err) {
		return
	}
	starts := []start{{"this host", math.MaxInt64, clock.For(e.etcd()).Time()}}
	for _, kv := range resp.Kvs {
		v, err := keyspace.Decode[protocol.Sentinel]("a sentinel", kv.Value, protocol.Version)
		if at := keyspace.Time(v.Since); err == nil && !at.IsZero() && kv.Lease != 0 {
			starts = append(starts, start{v.Owner, kv.ModRevision, at})
		}
	}
	const much = 20 * time.Second // a start can take a while after its time was read
	if ahead, behind, by := apart(starts); by > much {
		e.Add(Warning, "clocks", "look at the time services of both, and restart the process whose clock was wrong: "+
			"it runs ticks and delayed items early or late. Claims need no clock that is right",
			"the clock of %s is ahead of that of %s by %s at least", ahead.owner, behind.owner, by.Round(time.Second))
		return
	}
	e.well("clocks", "those of %s agree with this host", count(len(starts)-1, "session", "sessions"))
}

// apart returns the clocks that differ most: a session began before another one, and at a later time.
func apart(starts []start) (ahead, behind start, by time.Duration) {
	slices.SortFunc(starts, func(a, b start) int { return cmp.Compare(a.revision, b.revision) })
	latest := starts[0]
	for _, s := range starts {
		if d := latest.at.Sub(s.at); d > by {
			ahead, behind, by = latest, s, d
		}
		if s.at.After(latest.at) {
			latest = s
		}
	}
	return ahead, behind, by
}

// shortestTTL returns the least TTL of the first sessions, 0 if there are none.
func (e *Examination) shortestTTL(ctx context.Context) (ttl time.Duration) {
	some, _, _ := explain.First(admin.Sessions(ctx, e.Claims), 50)
	for _, s := range some {
		if ttl == 0 || s.TTL < ttl {
			ttl = s.TTL
		}
	}
	return ttl
}

// goneLeases returns the leases that etcd does not have, as far as they are known after the first of
// the given ones were read, and how many of these could not be read. A lease that is gone does not
// come back, so it is not read again.
func (e *Examination) goneLeases(ctx context.Context, leases map[clientv3.LeaseID]bool) (gone map[clientv3.LeaseID]bool, failed int) {
	if e.gone == nil {
		e.gone = map[clientv3.LeaseID]bool{}
	}
	delete(leases, clientv3.NoLease)
	asked := slices.Sorted(maps.Keys(leases)) // two runs ask for the same ones
	for _, id := range asked[:min(len(asked), e.Leases)] {
		if e.gone[id] {
			continue
		}
		switch lease, err := explain.LiveLease(ctx, e.etcd(), id); {
		case err != nil:
			failed++
		case lease == nil:
			e.gone[id] = true
		}
	}
	return maps.Clone(e.gone), failed
}
