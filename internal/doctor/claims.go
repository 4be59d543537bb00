package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// claims examines the held claims, their waiters and their leases.
func (e *Examination) claims(ctx context.Context) {
	h, err := e.holders(ctx)
	if isDenied(err) {
		e.unread("claims")
		return
	}
	if err != nil {
		e.Add(Error, "claims", "see the permissions", "cannot be listed: %v", err)
		return
	}
	e.held(ctx, h)
	if places, ok := e.lines(ctx, h); ok {
		for _, p := range places {
			h.leases[p.lease] = true
		}
		e.leases(ctx, h)
	}
}

// holders are the keys that are held.
type holders struct {
	all     []etcdclaims.Info
	partial bool // there are more than doctor reads
	leases  map[clientv3.LeaseID]bool
}

func (e *Examination) holders(ctx context.Context) (holders, error) {
	h := holders{leases: map[clientv3.LeaseID]bool{}}
	for i, err := range e.Claims.List(ctx, "") {
		if err != nil {
			return h, err
		}
		if len(h.all) == e.Limit {
			h.partial = true
			break
		}
		h.all = append(h.all, i)
		h.leases[i.Lease] = true
	}
	return h, nil
}

// held finds holders that are no claims any more.
func (e *Examination) held(ctx context.Context, h holders) {
	var zombies, permanent, ghosts []string
	gone, failed := e.goneLeases(ctx, h.leases)
	for _, i := range h.all {
		switch {
		case i.Kind == "slots" || i.Kind == "shared": // the record of a key whose claims have keys of their own
		case i.Lease == clientv3.NoLease:
			permanent = append(permanent, i.Key)
		case gone[i.Lease]:
			ghosts = append(ghosts, i.Key)
		case i.Kind == "zombie":
			zombies = append(zombies, i.Key)
		}
	}
	more, unread := "", unreadLeases(failed)
	if h.partial {
		more, unread = " or more", others
	}
	e.Judge("claims", unread, "%s held%s", count(len(h.all), "key is", "keys are"), more)
	if len(zombies) > 0 {
		e.Add(Warning, "claims", "look at the handlers: they did not stop when they had to; the keys are free when their leases end", "zombies: %s", several(zombies))
	}
	if len(permanent) > 0 {
		e.Add(Warning, "claims", fmt.Sprintf("another program wrote them: %[1]s explain KEY, and %[1]s release KEY --fence N if nobody needs them", e.Commands.Claimctl), "without a lease, so that they never expire: %s", several(permanent))
	}
	ghosts, err := e.stay(ctx, h, ghosts)
	if len(ghosts) > 0 {
		e.Add(Warning, "claims", fmt.Sprintf("etcd should have deleted them with the lease: %s release KEY --fence N", e.Commands.Claimctl), "ghosts, whose lease is gone: %s%s", several(ghosts), unconfirmed(err))
	}
}

// patience is how long what looks wrong may take to right itself: keys change hands,
// and follow their leases.
const patience = time.Second

// unconfirmed says of a finding that the second reading failed. The finding is reported all the
// same: while etcd is slow, each run of doctor would drop it.
func unconfirmed(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("; found once only, the second reading failed: %v", err)
}

// stay returns those of the keys that a second reading finds held in the same terms
// under the same leases. If that reading fails, stay returns all keys and the error.
func (e *Examination) stay(ctx context.Context, h holders, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	again, err := e.laterHolders(ctx)
	if err != nil {
		return keys, err
	}
	type term struct {
		key   string
		fence int64
		lease clientv3.LeaseID
	}
	before, stay := map[term]bool{}, []string(nil)
	for _, i := range h.all {
		before[term{i.Key, i.Fence, i.Lease}] = true
	}
	for _, i := range again.all {
		if before[term{i.Key, i.Fence, i.Lease}] && slices.Contains(keys, i.Key) {
			stay = append(stay, i.Key)
		}
	}
	return stay, nil
}

// laterHolders reads the holders again after a while.
func (e *Examination) laterHolders(ctx context.Context) (holders, error) {
	select {
	case <-time.After(patience):
		return e.holders(ctx)
	case <-ctx.Done():
		return holders{}, ctx.Err()
	}
}

// goneLeases returns those of the first leases that etcd does not have, and how many of these
// could not be read.
func (e *Examination) goneLeases(ctx context.Context, leases map[clientv3.LeaseID]bool) (gone map[clientv3.LeaseID]bool, failed int) {
	gone, asked := map[clientv3.LeaseID]bool{}, 0
	for _, id := range slices.Sorted(maps.Keys(leases)) { // two runs ask for the same ones
		if id == clientv3.NoLease {
			continue
		}
		if asked++; asked > e.Leases {
			break
		}
		switch lease, err := LiveLease(ctx, e.etcd(), id); {
		case err != nil:
			failed++
		case lease == nil:
			gone[id] = true
		}
	}
	return gone, failed
}

// leases finds leases that no key is attached to.
func (e *Examination) leases(ctx context.Context, h holders) {
	const many = 10
	resp, err := e.etcd().Leases(ctx)
	switch {
	case isDenied(err):
		return // there are keys on them that this user must not see
	case err != nil:
		e.Add(Warning, "leases", "see the endpoints", "cannot be listed: %v", err)
		return
	}
	asked, empty, failed := 0, 0, 0
	for _, l := range resp.Leases {
		if h.leases[l.ID] {
			continue
		}
		if asked++; asked > e.Leases {
			break
		}
		switch ttl, err := e.etcd().TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys()); {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // it ended meanwhile
		case err != nil:
			failed++
		case ttl.TTL > 0 && len(ttl.Keys) == 0:
			empty++
		}
	}
	if empty > many {
		e.Add(Warning, "leases", "find the program that grants leases without using them: each is renewed or expires at a cost", "%d of the %d that were read have no key; there are %d", empty, min(asked, e.Leases)-failed, len(resp.Leases))
		return
	}
	of := "them"
	if asked > e.Leases {
		of = fmt.Sprintf("the %d that were read", e.Leases-failed)
	}
	e.Judge("leases", unreadLeases(failed), "%d, %d of %s without a key", len(resp.Leases), empty, of)
}

// sessions finds sessions whose renewal is late: clients renew when a third of the TTL has
// passed.
func (e *Examination) sessions(ctx context.Context) {
	var late []string
	asked := 0
	for s, err := range admin.Sessions(ctx, e.Claims) {
		if isDenied(err) {
			e.unread("sessions")
			return
		}
		if err != nil {
			e.Add(Error, "sessions", "see the permissions", "cannot be listed: %v", err)
			return
		}
		if 2*s.Left < s.TTL {
			late = append(late, s.Owner)
		}
		if asked++; asked == e.Leases {
			break
		}
	}
	if len(late) > 0 {
		e.Add(Warning, "sessions", "look at the processes and at their connections to etcd: their claims end with their leases", "%d of the %d that were read renew late: %s", len(late), asked, several(late))
		return
	}
	of := ""
	if asked == e.Leases {
		of = "the first "
	}
	e.Well("sessions", "%s%d, none renews late", of, asked)
}

// shortestTTL returns the least TTL of the first sessions, 0 if there are none.
func (e *Examination) shortestTTL(ctx context.Context) (ttl time.Duration) {
	const most = 50
	asked := 0
	for s, err := range admin.Sessions(ctx, e.Claims) {
		if err != nil || asked == most {
			break
		}
		asked++
		if ttl == 0 || s.TTL < ttl {
			ttl = s.TTL
		}
	}
	return ttl
}
