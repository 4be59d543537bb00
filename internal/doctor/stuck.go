package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefaultStuck is how long the first in line may wait if Examination.Stuck is zero.
const DefaultStuck = 15 * time.Minute

// stuckLine is a line whose first has waited for long.
type stuckLine struct {
	key     string // that users know
	first   place
	waiting int
	holders []etcdclaims.Info // one, or those of all slots
}

func (l stuckLine) text() string {
	by := l.holders[0].Owner
	if len(l.holders) > 1 {
		by = fmt.Sprintf("%d slots", len(l.holders))
	}
	return fmt.Sprintf("%s (%s since %s, %d in line, held by %s)", l.key, l.first.Owner, Stamp(l.first.Since), l.waiting, by)
}

// living returns the places whose leases are not known to be gone.
func living(places []place, gone map[clientv3.LeaseID]bool) []place {
	return slices.DeleteFunc(slices.Clone(places), func(p place) bool { return p.lease == clientv3.NoLease || gone[p.lease] })
}

// stuck reports the lines whose first has waited longer than e.Stuck while the holder of the
// key renews its lease: then the key is not free by itself. It sends one request for each
// holder of the few lines that wait longest. unread counts the holders whose leases could not
// be read.
func (e *Examination) stuck(ctx context.Context, h holders, places []place) (found bool, unread int) {
	const most = 10 // lines whose holders are asked for
	bound := cmp.Or(e.Stuck, DefaultStuck)
	long := longLines(h.all, places, clock.For(e.Claims.Etcd()).Time().Add(-bound))
	long = slices.DeleteFunc(long, func(l stuckLine) bool { return e.standsBy(l.key) })
	var stuck []string
	for _, l := range long[:min(len(long), most)] {
		switch renewed, err := e.renewed(ctx, l.holders); {
		case err != nil:
			unread++
		case renewed:
			stuck = append(stuck, l.text())
		}
	}
	if len(stuck) == 0 {
		return false, unread
	}
	level, others := Note, ""
	if e.Stuck > 0 {
		level = Warning
	}
	if more := len(long) - most; more > 0 {
		others = fmt.Sprintf("; %s not looked at", count(more, "line that also waits was", "lines that also wait were"))
	}
	e.Add(level, "lines", fmt.Sprintf("%[1]s explain KEY, and look at the holder: if its handler hangs, %[1]s release KEY --fence N; if the key is a leader's, its standbys wait like that", e.Commands.Claimctl),
		"the first in line waits for more than %s while the holder renews: %s%s", bound, several(stuck), others)
	return true, unread
}

// longLines returns the lines of held keys whose first has waited since before the given time,
// by its own clock. The one that has waited longest comes first.
func longLines(held []etcdclaims.Info, places []place, since time.Time) []stuckLine {
	byDigest, slots := map[string]*stuckLine{}, map[string]int{}
	add := func(digest, key string, i etcdclaims.Info) {
		if byDigest[digest] == nil {
			byDigest[digest] = &stuckLine{key: key}
		}
		byDigest[digest].holders = append(byDigest[digest].holders, i)
	}
	isHeld := map[string]etcdclaims.Info{}
	for _, i := range held {
		if isHeld[i.Key] = i; i.Slots == 0 {
			add(keyspace.Digest(i.Key), i.Key, i)
		}
	}
	for _, i := range held {
		if i.Slots == 0 {
			continue
		}
		family := keyspace.Digest(keyspace.SlotFamily(i.Key))
		slots[family] = i.Slots
		for slot := range i.Slots {
			if holder, ok := isHeld[etcdclaims.SlotKey(i.Key, slot)]; ok {
				add(family, i.Key, holder)
			}
		}
	}
	for _, p := range slices.SortedFunc(slices.Values(places), byArrival) {
		if l := byDigest[p.digest]; l != nil {
			if l.waiting++; l.waiting == 1 {
				l.first = p
			}
		}
	}
	var long []stuckLine
	for digest, l := range byDigest {
		if l.waiting > 0 && !l.first.Since.IsZero() && l.first.Since.Before(since) && len(l.holders) >= slots[digest] {
			long = append(long, *l)
		}
	}
	slices.SortFunc(long, func(a, b stuckLine) int {
		return cmp.Or(a.first.Since.Compare(b.first.Since), cmp.Compare(a.key, b.key))
	})
	return long
}

// standsBy reports whether the waiters of the key stand by as its next leaders.
func (e *Examination) standsBy(key string) bool {
	if strings.HasPrefix(key, "sched/") && strings.HasSuffix(key, "/owner") {
		return true // of a group of schedules
	}
	return slices.ContainsFunc(e.Standby, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// renewed reports whether the leases of the holders were renewed of late. Of many it asks for
// the first few.
func (e *Examination) renewed(ctx context.Context, holders []etcdclaims.Info) (bool, error) {
	const asked = 3
	for _, i := range holders[:min(len(holders), asked)] {
		if i.Lease == clientv3.NoLease || i.Kind == "zombie" {
			return false, nil // see claims
		}
		lease, err := LiveLease(ctx, e.etcd(), i.Lease)
		if err != nil || lease == nil || Overdue(lease) {
			return false, err
		}
	}
	return true, nil
}

// Overdue reports whether the holder of a lease has missed a renewal: one is due when a third
// of the lease time has passed. etcd tells what is left in full seconds.
func Overdue(lease *clientv3.LeaseTimeToLiveResponse) bool {
	ttl, ago := Age(lease)
	return ago > ttl/3+2*time.Second
}

// Age returns the TTL of a lease, and how long ago it was renewed or granted.
func Age(lease *clientv3.LeaseTimeToLiveResponse) (ttl, ago time.Duration) {
	ttl = time.Duration(lease.GrantedTTL) * time.Second
	return ttl, max(ttl-time.Duration(lease.TTL)*time.Second-time.Second/2, 0)
}
