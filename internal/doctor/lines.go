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
	"github.com/etcdclaims/claims/internal/keyspace"
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
	Owner    string    `json:"owner"`
	Since    time.Time `json:"since"`
}

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

// heads returns the first place of each line whose key, or one of its slots, is free.
func heads(places []place, held []etcdclaims.Info) map[string]place {
	taken := map[string]bool{}
	isHeld := map[string]bool{}
	for _, i := range held {
		isHeld[i.Key], taken[keyspace.Digest(i.Key)] = true, true
	}
	for _, i := range held {
		full := true
		for slot := range i.Slots {
			full = full && isHeld[etcdclaims.SlotKey(i.Key, slot)]
		}
		taken[keyspace.Digest(keyspace.SlotFamily(i.Key))] = full
	}
	first := map[string]place{}
	for _, p := range places {
		if f, ok := first[p.digest]; !taken[p.digest] && (!ok || p.revision < f.revision) {
			first[p.digest] = p
		}
	}
	return first
}

// lines finds places in line that nobody stands in. It reports false if the lines
// cannot be read.
func (e *Examination) lines(ctx context.Context, h holders) ([]place, bool) {
	places, err := e.places(ctx)
	if err != nil {
		if isDenied(err) {
			e.unread("lines")
		} else {
			e.Add(Error, "lines", "see the endpoints", "cannot be read: %v", err)
		}
		return nil, false
	}
	leases := map[clientv3.LeaseID]bool{}
	for _, p := range places {
		leases[p.lease] = true
	}
	gone, failed := e.goneLeases(ctx, leases)
	stuck, failedToo := e.stuck(ctx, h, living(places, gone))
	well := !stuck
	for _, p := range places {
		if !gone[p.lease] && p.lease != clientv3.NoLease {
			continue
		}
		if stays, err := e.stays(ctx, p); stays {
			well = false
			e.Add(Warning, "lines", "delete the place: "+e.Commands.Etcdctl+" del"+Arguments(p.name), "a ghost waits: %s, since %s, has no lease%s", p.Owner, Stamp(p.Since), unconfirmed(err))
			break // one shows what is wrong
		}
	}
	deaf, err := e.unserved(ctx, h, places)
	for _, p := range deaf {
		well = false
		e.Add(Warning, "lines", fmt.Sprintf("restart %s, which does not take what is free; or delete its place: %s del%s", p.Owner, e.Commands.Etcdctl, Arguments(p.name)),
			"%s is first in line for a key that is free, since %s%s", p.Owner, Stamp(p.Since), unconfirmed(err))
	}
	unread := unreadLeases(failed + failedToo)
	if len(places) == e.Limit {
		unread = "there may be more, which were not read"
	}
	if well {
		e.Judge("lines", unread, "%d in line", len(places))
	}
	return places, true
}

// stays reports whether a place is still as it was, when it has had the time to
// follow its lease. If it cannot be read again, stays returns true and the error.
func (e *Examination) stays(ctx context.Context, p place) (bool, error) {
	select {
	case <-time.After(patience):
	case <-ctx.Done():
		return true, ctx.Err()
	}
	resp, err := e.etcd().Get(ctx, p.name)
	if err != nil {
		return true, err
	}
	return len(resp.Kvs) == 1 && resp.Kvs[0].ModRevision == p.modified && clientv3.LeaseID(resp.Kvs[0].Lease) == p.lease, nil
}

// unserved returns a few of those who stay first in line for a free key. If a second reading
// fails, it returns a few of those who were first before, and the error.
func (e *Examination) unserved(ctx context.Context, h holders, places []place) ([]place, error) {
	const shown = 3
	before := heads(places, h.all)
	if len(before) == 0 || h.partial || len(places) == e.Limit {
		return nil, nil // nothing, or whether a key is free is not known
	}
	later, err := e.laterHeads(ctx)
	if err != nil {
		later = before
	}
	var deaf []place
	for digest, p := range later {
		if before[digest].name == p.name {
			deaf = append(deaf, p)
		}
	}
	slices.SortFunc(deaf, byArrival) // those who wait longest
	return deaf[:min(len(deaf), shown)], err
}

// laterHeads waits, and then reads the first place in line of each free key.
func (e *Examination) laterHeads(ctx context.Context) (map[string]place, error) {
	held, err := e.laterHolders(ctx)
	switch {
	case err != nil:
		return nil, err
	case held.partial:
		return nil, fmt.Errorf("more than %s held", count(e.Limit, "key is", "keys are"))
	}
	places, err := e.places(ctx)
	if err != nil {
		return nil, err
	}
	return heads(places, held.all), nil
}

// byArrival orders places by the time at which etcd got them.
func byArrival(a, b place) int {
	return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.name, b.name))
}
