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
		if r.gone[i.Lease] && !i.Newer {
			all = append(all, suspect{"ghost", fmt.Sprint(i.Key, i.Fence, i.Lease), i.Key})
		}
	}
	return append(all, e.lineSuspects(r)...)
}

// claims examines the held claims and those who wait.
func (e *Examination) claims(ctx context.Context) {
	r, err := e.read(ctx)
	if e.failed(Error, "claims", "see the permissions", "cannot be listed", err) {
		return
	}
	found, unconfirmed := confirm(ctx, e.suspects(r), func(ctx context.Context) ([]suspect, error) {
		again, err := e.read(ctx)
		if err = cmp.Or(err, again.err); err == nil && again.more {
			err = fmt.Errorf("more than %s held", count(e.Limit, "key is", "keys are"))
		}
		return e.suspects(again), err
	})
	e.held(r, namesOf(found, "ghost"), unconfirmed)
	if !e.failed(Error, "lines", "see the endpoints", "cannot be read", r.err) {
		e.lines(r, found, unconfirmed)
	}
}

// held reports the holders that are no claims any more.
func (e *Examination) held(r reading, ghosts []string, unconfirmed string) {
	var zombies, permanent, newer []string
	for _, i := range r.held {
		switch {
		case i.Kind == "slots" || i.Kind == "shared": // the record of a key whose claims have keys of their own
		case i.Newer:
			newer = append(newer, i.Key)
		case i.Lease == clientv3.NoLease:
			permanent = append(permanent, i.Key)
		case i.Kind == "zombie" && !r.gone[i.Lease]:
			zombies = append(zombies, i.Key)
		}
	}
	more, unread := "", unreadLeases(r.unread)
	if r.more {
		more, unread = " or more", others
	}
	e.Judge("claims", unread, "%s held%s", count(len(r.held), "key is", "keys are"), more)
	warn := func(keys []string, remedy, format string) {
		if len(keys) > 0 {
			e.Add(Warning, "claims", remedy, format, several(keys))
		}
	}
	warn(zombies, "look at the handlers: they did not stop when they had to; the keys are free when their leases end",
		"zombies: %s")
	warn(permanent, fmt.Sprintf("another program wrote them: %[1]s explain KEY, "+
		"and %[1]s release KEY --fence N if nobody needs them", e.Commands.Claimctl),
		"without a lease, so that they never expire: %s")
	warn(newer, "examine them with a claimctl of that version", "written by a newer version: %s")
	warn(ghosts, fmt.Sprintf("etcd should have deleted them with the lease: %s release KEY --fence N", e.Commands.Claimctl),
		"ghosts, whose lease is gone: %s"+unconfirmed)
}

// sessions finds sessions whose renewal is late: clients renew when a third of the TTL has
// passed.
func (e *Examination) sessions(ctx context.Context) {
	var late []string
	of := source{"sessions", Error, "see the permissions", "cannot be listed", e.Leases}
	asked, unread, well := each(ctx, e, of, admin.Sessions(ctx, e.Claims), func(s admin.SessionInfo) error {
		if 2*s.Left < s.TTL {
			late = append(late, s.Owner)
		}
		return nil
	})
	switch {
	case !well:
	case len(late) > 0:
		e.Add(Warning, "sessions", "look at the processes and at their connections to etcd: their claims end with their leases",
			"%d of the %d that were read renew late: %s", len(late), asked, several(late))
	case unread != "":
		e.Well("sessions", "the first %d, none renews late", asked)
	default:
		e.Well("sessions", "%d, none renews late", asked)
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
