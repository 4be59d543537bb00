package durable

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// valueVersion is that of the value that this package writes.
const valueVersion = 1

// Last is what there was when somebody last looked, or before something was deleted.
type Last struct {
	Version int            `json:"v"`
	At      time.Time      `json:"at"`
	Began   int64          `json:"began"` // revision before the counting: an action after it may have come before the end
	Names   []string       `json:"names"`
	Of      map[Kind]int64 `json:"counts"`

	Revision int64 `json:"-"` // of the key; 0 if nobody has looked yet
	now      int64 // revision of etcd
}

// LastKey is where the last counts are: beside the prefix, because a deletion of all keys below it must leave them.
func LastKey(prefix string) string { return strings.TrimSuffix(prefix, "/") + ".counts" }

// ReadLast reads the last counts.
func ReadLast(ctx context.Context, etcd clientv3.KV, prefix string) (last Last, err error) {
	resp, err := retry.Get(ctx, etcd, readTime, clientv3.OpGet(LastKey(prefix)))
	if err != nil {
		return last, txn.Denied(err)
	}
	if len(resp.Kvs) > 0 {
		last, err = keyspace.Decode[Last](LastKey(prefix), resp.Kvs[0].Value, valueVersion)
		last.Revision = resp.Kvs[0].ModRevision
	}
	if last.Revision <= last.Began { // the key was copied from another etcd
		last.Names = nil
	}
	last.now = resp.Header.Revision
	return last, err
}

// between is the least time from one put of the counts to the next.
const between = time.Minute

// Replace puts the counts in the place of the last ones, which were read before they were made. It does not if those
// were put within a minute, or another has replaced them, or if there is nothing to keep.
func (l Last) Replace(ctx context.Context, etcd clientv3.KV, prefix string, now Counts, at time.Time) error {
	if l.Revision != 0 && at.Sub(l.At).Abs() < between || l.Revision == 0 && len(now.Names) == 0 {
		return nil
	}
	value := keyspace.Encode(Last{Version: valueVersion, At: at.UTC(), Began: l.now, Names: now.Names, Of: now.Of})
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	_, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(LastKey(prefix)), "=", l.Revision)).
		Then(clientv3.OpPut(LastKey(prefix), value)).Commit()
	return txn.Denied(err)
}

// Gone returns the names that were there and are no more, and that no operator has removed since, by the records. It returns
// none if a record of the removal may have been removed itself, or cannot be read.
func (l Last) Gone(ctx context.Context, etcd clientv3.KV, prefix string, now Counts, at time.Time) ([]string, error) {
	gone := slices.DeleteFunc(slices.Clone(l.Names), func(name string) bool {
		_, there := slices.BinarySearch(now.Names, name)
		return there
	})
	if len(gone) == 0 || at.Sub(l.At).Abs() > audit.MaxAge/2 {
		return nil, nil
	}
	acts, kept, err := audit.Since(ctx, etcd, prefix, l.Began)
	if err != nil || kept >= audit.Most {
		return nil, txn.Denied(err)
	}
	for _, r := range acts {
		if r.Err != nil {
			return nil, nil
		}
		removed := removedBy(r)
		gone = slices.DeleteFunc(gone, func(name string) bool { return slices.Contains(removed, name) })
	}
	return gone, nil
}
