package durable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Check returns an error if an entry cannot come from a backup.
func (e Entry) Check() error {
	if len(e.Keys) == 0 {
		return fmt.Errorf("%s %q has no keys", e.Kind, e.Name)
	}
	for _, k := range e.Keys {
		dir, _, _ := strings.Cut(k.Key, "/")
		if dir != "queue" && dir != "sched" && dir != "group" && dir != "audit" {
			return fmt.Errorf("a backup has no such key as %q", k.Key)
		}
	}
	return nil
}

// Restore puts a backup back. The action of the operator is recorded with each entry.
type Restore struct {
	Etcd      clientv3.KV
	Prefix    string
	Act       *audit.Act
	Dry       bool // only looks
	MayRepeat bool // puts back dead letters, too

	since map[int64]map[string]audit.Record // what operators removed since a revision, by key
}

// Restored is what became of an entry.
type Restored struct {
	Entry
	LeftOut string // why, or empty
	Err     error
}

// All puts entries back, each unless what it is about exists. Pauses come first: a program must not begin what has to
// stay paused. An error of one entry does not stop the others.
func (r *Restore) All(ctx context.Context, entries []Entry) (all []Restored) {
	r.since = map[int64]map[string]audit.Record{}
	for _, pauses := range []bool{true, false} {
		for _, e := range entries {
			if pauses == (e.Kind == QueuePauses || e.Kind == JobPauses) {
				leftOut, err := r.one(ctx, e)
				all = append(all, Restored{e, leftOut, err})
			}
		}
	}
	return all
}

// one puts an entry back. It returns why it was left out, or "".
func (r *Restore) one(ctx context.Context, e Entry) (leftOut string, err error) {
	var gets, puts []clientv3.Op
	var same []clientv3.Cmp
	for _, k := range e.Keys {
		gets = append(gets, clientv3.OpGet(r.Prefix+k.Key))
	}
	resp, err := retry.Read(ctx, r.Etcd, readTime, gets...)
	if err != nil {
		return "", txn.Denied(err)
	}
	for i, k := range e.Keys {
		is, rev := txn.First(resp, i), int64(0)
		switch {
		case is == nil:
			puts = append(puts, clientv3.OpPut(r.Prefix+k.Key, k.Value))
		case i == 0:
			return "exists", nil
		case string(is.Value) != k.Value:
			return "has another " + k.Key + " by now", nil
		default:
			rev = is.ModRevision
		}
		same = append(same, clientv3.Compare(clientv3.ModRevision(r.Prefix+k.Key), "=", rev))
	}
	if leftOut, err := r.removed(ctx, e); leftOut != "" || err != nil || r.Dry {
		return leftOut, err
	}
	done, err := retry.Within(ctx, readTime, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.Etcd.Txn(ctx).If(same...).Then(append(puts, r.Act.Ops()...)...).Else(gets[0]).Commit()
	})
	if err != nil {
		return "", r.Act.End(ctx, txn.Outcome(ctx, err))
	}
	if !done.Succeeded { // or a request whose reply was lost has put it
		if is := txn.First(done, 0); is == nil || string(is.Value) != e.Keys[0].Value {
			return "changed meanwhile", nil
		}
	}
	return "", nil
}

// removed returns why an entry that does not exist may have been removed on purpose since the backup, or "".
func (r *Restore) removed(ctx context.Context, e Entry) (why string, err error) {
	if e.Kind == DeadLetters && !r.MayRepeat {
		return "its work may have been done since the backup; --may-repeat puts it back", nil
	}
	since, read := r.since[e.Revision]
	if !read {
		acts, _, err := audit.Since(ctx, r.Etcd, r.Prefix, e.Revision)
		if err != nil {
			return "", txn.Denied(err)
		}
		since = map[string]audit.Record{}
		for act := range slices.Values(acts) {
			for _, key := range removedBy(act) {
				since[key] = act
			}
		}
		r.since[e.Revision] = since
	}
	if act, is := since[e.Keys[0].Key]; is {
		return fmt.Sprintf("removed since the backup: %s by %s at %s", act.Verb, act.Who, act.At.Format(time.RFC3339)), nil
	}
	return "", nil
}
