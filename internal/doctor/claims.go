package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
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
			err = fmt.Errorf("more than %s held", errtext.Count(e.Limit, "key is", "keys are"))
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
	e.judge("claims", unread, "%s held%s", errtext.Count(len(r.held), "key is", "keys are"), more)
	warn := func(keys []string, remedy, detail, suffix string, release bool) {
		if len(keys) == 0 {
			return
		}
		f := e.Add(Warning, "claims", remedy, "%s: %s%s", detail, several(keys), suffix)
		f.run(e.claimctl("explain", keys[0]))
		if release {
			f.run(e.claimctl(fmt.Sprintf("release --fence %d", fences[keys[0]]), keys[0]))
		}
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
		).run(e.claimctl("ls --held-by " + explain.Quoted(owners[0])))
	case unread != "" && ctx.Err() != nil:
		e.judge("sessions", unread, "the first %d, none renews late", asked)
	case unread != "": // the limit is meant
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
	e.well("clocks", "those of %s agree with this host", errtext.Count(len(starts)-1, "session", "sessions"))
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

// place is a place in line as it is in etcd. The key that it is in line for is
// known by its digest only.
type place struct {
	name     string // of the key in etcd
	digest   string
	revision int64
	modified int64
	lease    clientv3.LeaseID
	Version  int       `json:"v"`
	Owner    string    `json:"owner"`
	Since    time.Time `json:"since"`
}

// grace is how old a caller in line must be to count as deaf. Its time is that of its own clock.
const grace = 10 * time.Second

func (p place) young(now time.Time) bool {
	age := now.Sub(p.Since)
	return age >= 0 && age < grace
}

func (p place) newer() bool { return keyspace.Newer(p.Version, protocol.Version) != nil }

// places reads those who wait, at most as many as Limit, in the order of their
// arrival within each line.
func (e *Examination) places(ctx context.Context) ([]place, error) {
	root := e.Claims.Prefix() + "wait/"
	resp, err := retry.Get(ctx, e.etcd(), e.Patience, clientv3.OpGet(root, clientv3.WithPrefix(), clientv3.WithLimit(int64(e.Limit))))
	if err != nil {
		return nil, err
	}
	var all []place
	for _, kv := range resp.Kvs {
		p := place{
			name: string(kv.Key), revision: kv.CreateRevision, modified: kv.ModRevision,
			lease: clientv3.LeaseID(kv.Lease), Owner: "unknown",
		}
		p.digest, _, _ = strings.Cut(strings.TrimPrefix(p.name, root), "/")
		_ = json.Unmarshal(kv.Value, &p) // what another program wrote has no owner
		all = append(all, p)
	}
	return all, nil
}

// heads returns the first place of each line whose key, or one of its slots, is free, in the
// order in which they came.
func heads(places []place, held []etcdclaims.Info) (first []place) {
	taken := map[string]bool{}
	for _, i := range held {
		taken[keyspace.Digest(i.Key)] = true
	}
	for _, i := range held {
		full := true
		for slot := range i.Slots {
			full = full && taken[keyspace.Digest(etcdclaims.SlotKey(i.Key, slot))]
		}
		taken[keyspace.Digest(keyspace.SlotFamily(i.Key))] = full
	}
	arrival := func(a, b place) int { return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.name, b.name)) }
	for _, p := range slices.SortedFunc(slices.Values(places), arrival) {
		if !taken[p.digest] {
			taken[p.digest], first = true, append(first, p)
		}
	}
	return first
}

// lineSuspects returns the places without a lease, and those that are first in line for a free
// key. Whether a key is free is not known if not all was read.
func (e *Examination) lineSuspects(r reading) (all []suspect) {
	for _, p := range r.places {
		if p.newer() {
			continue // what it waits for, and how, is not known
		}
		if p.lease == clientv3.NoLease || r.gone[p.lease] {
			all = append(all, suspect{"ghost place", fmt.Sprint(p.name, p.modified, p.lease), p.name})
		}
	}
	if r.more || len(r.places) == e.Limit {
		return all
	}
	now := clock.Clock{}.Time()
	for _, p := range heads(r.places, r.held) {
		if !p.newer() && !p.young(now) {
			all = append(all, suspect{"first of a free key", fmt.Sprint(p.name, p.modified), p.name})
		}
	}
	return all
}

// lines reports the places in line that nobody stands in.
func (e *Examination) lines(r reading, suspects []suspect, unconfirmed string) {
	places := map[string]place{}
	for _, p := range r.places {
		places[p.name] = p
	}
	ghosts, deaf := namesOf(suspects, "ghost place"), namesOf(suspects, "first of a free key")
	for _, name := range ghosts[:min(len(ghosts), 1)] { // one shows what is wrong
		p := places[name]
		e.Add(Warning, "lines", "see that no process of "+p.Owner+" waits, and only then delete the place",
			"a ghost waits: %s, since %s, has no lease%s", p.Owner, explain.Stamp(p.Since), unconfirmed,
		).run(e.etcdctl("get", name), e.etcdctl("del", name))
	}
	for _, name := range deaf[:min(len(deaf), 3)] { // those who wait longest
		p := places[name]
		e.Add(Warning, "lines", "restart the process of "+p.Owner+", which does not take what is free: its place ends with it",
			"%s is first in line for a key that is free, since %s%s", p.Owner, explain.Stamp(p.Since), unconfirmed,
		).run(e.etcdctl("get", name))
	}
	unread := unreadLeases(r.unread)
	if len(r.places) == e.Limit {
		unread = others
	}
	if len(ghosts)+len(deaf) == 0 {
		e.judge("lines", unread, "%d in line", len(r.places))
	}
}
