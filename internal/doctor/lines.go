package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/explain"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/retry"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
		p := place{name: string(kv.Key), revision: kv.CreateRevision, modified: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease), Owner: "unknown"}
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
		).Commands = append(e.etcdctl(" get%s", explain.Arguments(name)), e.etcdctl(" del%s", explain.Arguments(name))...)
	}
	for _, name := range deaf[:min(len(deaf), 3)] { // those who wait longest
		p := places[name]
		e.Add(Warning, "lines", "restart the process of "+p.Owner+", which does not take what is free: its place ends with it",
			"%s is first in line for a key that is free, since %s%s", p.Owner, explain.Stamp(p.Since), unconfirmed,
		).Commands = e.etcdctl(" get%s", explain.Arguments(name))
	}
	unread := unreadLeases(r.unread)
	if len(r.places) == e.Limit {
		unread = others
	}
	if len(ghosts)+len(deaf) == 0 {
		e.judge("lines", unread, "%d in line", len(r.places))
	}
}
