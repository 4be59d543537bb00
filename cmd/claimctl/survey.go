package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// survey looks for what nobody looks after any more.
func (d *doctor) survey(ctx context.Context, claims *etcdclaims.Client) {
	ctx, cancel := context.WithTimeout(ctx, d.commandTimeout)
	defer cancel()
	h, err := d.holders(ctx, claims)
	if isDenied(err) {
		return // see permissions
	}
	if err != nil {
		d.add(levelError, "claims", "see the permissions", "cannot be listed: %v", err)
		return
	}
	d.heldKeys(ctx, claims, h)
	if places, ok := d.lines(ctx, claims, h); ok {
		for _, p := range places {
			h.leases[p.lease] = true
		}
		d.leases(ctx, h)
	}
	d.work(ctx, claims)
}

// holders are the keys that are held.
type holders struct {
	all     []etcdclaims.Info
	partial bool // there are more than doctor reads
	leases  map[clientv3.LeaseID]bool
}

func (d *doctor) holders(ctx context.Context, claims *etcdclaims.Client) (holders, error) {
	h := holders{leases: map[clientv3.LeaseID]bool{}}
	for i, err := range claims.List(ctx, "") {
		if err != nil {
			return h, err
		}
		if len(h.all) == d.limit {
			h.partial = true
			break
		}
		h.all = append(h.all, i)
		h.leases[i.Lease] = true
	}
	return h, nil
}

// heldKeys finds holders that are no claims any more.
func (d *doctor) heldKeys(ctx context.Context, claims *etcdclaims.Client, h holders) {
	var zombies, permanent, ghosts []string
	gone := d.goneLeases(ctx, h.leases)
	for _, i := range h.all {
		switch {
		case i.Kind == "slots": // says how many a key has, and stays
		case i.Lease == clientv3.NoLease:
			permanent = append(permanent, i.Key)
		case gone[i.Lease]:
			ghosts = append(ghosts, i.Key)
		case i.Kind == "zombie":
			zombies = append(zombies, i.Key)
		}
	}
	more := ""
	if h.partial {
		more = " or more; the others were not read (--limit)"
	}
	d.ok("claims", "%d keys are held%s", len(h.all), more)
	if len(zombies) > 0 {
		d.add(levelWarning, "claims", "look at the handlers: they did not stop when they had to; the keys are free when their leases end", "zombies: %s", several(zombies))
	}
	if len(permanent) > 0 {
		d.add(levelWarning, "claims", fmt.Sprintf("another program wrote them: %[1]s explain KEY, and %[1]s release KEY --fence N if nobody needs them", d.claimctl()), "without a lease, so that they never expire: %s", several(permanent))
	}
	if ghosts = d.stay(ctx, claims, h, ghosts); len(ghosts) > 0 {
		d.add(levelWarning, "claims", fmt.Sprintf("etcd should have deleted them with the lease: %s release KEY --fence N", d.claimctl()), "ghosts, whose lease is gone: %s", several(ghosts))
	}
}

// patience is how long what looks wrong may take to right itself: keys change hands,
// and follow their leases.
const patience = time.Second

// stay returns those of the keys that a second reading finds held in the same terms
// under the same leases.
func (d *doctor) stay(ctx context.Context, claims *etcdclaims.Client, h holders, keys []string) []string {
	if len(keys) == 0 {
		return nil
	}
	again, err := d.laterHolders(ctx, claims)
	if err != nil {
		return nil
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
	return stay
}

// laterHolders reads the holders again after a while.
func (d *doctor) laterHolders(ctx context.Context, claims *etcdclaims.Client) (holders, error) {
	select {
	case <-time.After(patience):
		return d.holders(ctx, claims)
	case <-ctx.Done():
		return holders{}, ctx.Err()
	}
}

// goneLeases returns those of the first leases that etcd does not have.
func (d *doctor) goneLeases(ctx context.Context, leases map[clientv3.LeaseID]bool) map[clientv3.LeaseID]bool {
	const most = 200
	gone, asked := map[clientv3.LeaseID]bool{}, 0
	for id := range leases {
		if id == clientv3.NoLease {
			continue
		}
		if asked++; asked > most {
			break
		}
		if lease, err := liveLease(ctx, d.etcd, id); err == nil && lease == nil {
			gone[id] = true
		}
	}
	return gone
}

// leases finds leases that no key is attached to.
func (d *doctor) leases(ctx context.Context, h holders) {
	const most, many = 100, 10
	resp, err := d.etcd.Leases(ctx)
	switch {
	case isDenied(err):
		return // there are keys on them that this user must not see
	case err != nil:
		d.add(levelWarning, "leases", "see the endpoints", "cannot be listed: %v", err)
		return
	}
	asked, empty := 0, 0
	for _, l := range resp.Leases {
		if h.leases[l.ID] {
			continue
		}
		if asked++; asked > most {
			break
		}
		if ttl, err := d.etcd.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys()); err == nil && ttl.TTL > 0 && len(ttl.Keys) == 0 {
			empty++
		}
	}
	if empty > many {
		d.add(levelWarning, "leases", "find the program that grants leases without using them: each is renewed or expires at a cost", "%d of the %d that were read have no key; there are %d", empty, min(asked, most), len(resp.Leases))
		return
	}
	d.ok("leases", "%d, %d of them without a key", len(resp.Leases), empty)
}

// work counts the records by their states.
func (d *doctor) work(ctx context.Context, claims *etcdclaims.Client) {
	byState, read := map[etcdclaims.State][]string{}, 0
	for r, err := range claims.Records(ctx, "") {
		if isDenied(err) {
			return // see permissions
		}
		if err != nil {
			d.add(levelError, "work", "see the permissions", "cannot be listed: %v", err)
			return
		}
		if read == d.limit {
			break
		}
		read++
		byState[r.State] = append(byState[r.State], r.Key)
	}
	well := true
	for _, sick := range []struct {
		state  etcdclaims.State
		is     string
		remedy string
	}{
		{etcdclaims.StateOrphaned, "orphaned, their owners died", fmt.Sprintf("see that a process begins them again; %s work ls --state orphaned", d.claimctl())},
		{etcdclaims.StateDead, "dead, after their last attempt", fmt.Sprintf("%[1]s work show KEY, mend the cause, %[1]s work retry KEY", d.claimctl())},
		{etcdclaims.StateUnreadable, "unreadable", "a newer version or another program wrote them: do not delete them before you know"},
	} {
		if keys := byState[sick.state]; len(keys) > 0 {
			well = false
			d.add(levelWarning, "work", sick.remedy, "%d %s: %s", len(keys), sick.is, several(keys))
		}
	}
	if well {
		d.ok("work", "%d records, none orphaned or dead", read)
	}
}

// several names a few keys and counts the others.
func several(keys []string) string {
	const shown = 3
	if len(keys) <= shown {
		return strings.Join(keys, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(keys[:shown], ", "), len(keys)-shown)
}
