package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/explain"
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
		e.Add(Warning, "sessions", "look at the processes and at their connections to etcd: their claims end with their leases",
			"%d of the %d that were read renew late: %s%s", len(found), asked, several(namesOf(found, "late")), unconfirmed)
	case unread != "":
		e.well("sessions", "the first %d, none renews late", asked)
	default:
		e.well("sessions", "%d, none renews late", asked)
	}
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

// A suspect is what looks wrong at one reading. Keys change hands, and follow their leases, so
// it counts only if a second reading finds the same.
type suspect struct {
	kind string // of what is reported together
	id   string // the same in both readings only if nothing has changed
	name string // for people
}

// patience is how long what looks wrong may take to right itself.
const patience = time.Second

// confirm returns the suspects that a second reading finds, too. If that reading fails, it
// returns all of them, and a text that says so: while etcd is slow, each run would drop them.
func confirm(ctx context.Context, before []suspect, read func(context.Context) ([]suspect, error)) ([]suspect, string) {
	if len(before) == 0 {
		return nil, ""
	}
	select {
	case <-time.After(patience):
	case <-ctx.Done(): // then the second reading fails
	}
	again, err := read(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return before, fmt.Sprintf("; found once only, the second reading failed: %v", err)
	}
	return slices.DeleteFunc(slices.Clone(before), func(s suspect) bool { return !slices.Contains(again, s) }), ""
}

// confirmEach is confirm where each suspect is read for itself.
func confirmEach(ctx context.Context, before []suspect, still func(context.Context, suspect) (bool, error)) ([]suspect, string) {
	return confirm(ctx, before, func(ctx context.Context) (again []suspect, err error) {
		for _, s := range before {
			is, err := still(ctx, s)
			if err != nil {
				return nil, err
			}
			if is {
				again = append(again, s)
			}
		}
		return again, nil
	})
}

// namesOf returns the names of the suspects of a kind.
func namesOf(all []suspect, kind string) (names []string) {
	for _, s := range all {
		if s.kind == kind {
			names = append(names, s.name)
		}
	}
	return names
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
