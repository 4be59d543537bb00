package durable

import (
	"context"
	"maps"
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

// Last is the counts as they were when somebody last looked, or before something was deleted.
type Last struct {
	Version int            `json:"v"`
	At      time.Time      `json:"at"`
	Of      map[Kind]int64 `json:"counts"`

	Revision int64 `json:"-"` // 0 if nobody has looked yet
}

// LastKey is where the last counts are: beside the prefix, because a deletion of all keys below it must leave them.
func LastKey(prefix string) string { return strings.TrimSuffix(prefix, "/") + ".counts" }

// ReadLast reads the last counts.
func ReadLast(ctx context.Context, etcd clientv3.KV, prefix string) (last Last, err error) {
	resp, err := retry.Get(ctx, etcd, readTime, clientv3.OpGet(LastKey(prefix)))
	if err != nil || len(resp.Kvs) == 0 {
		return last, txn.Denied(err)
	}
	last, err = keyspace.Decode[Last](LastKey(prefix), resp.Kvs[0].Value, valueVersion)
	last.Revision = resp.Kvs[0].ModRevision
	return last, err
}

// between is the least time from one put of the counts to the next.
const between = time.Minute

// Replace puts the counts in the place of the last ones, unless they are the same or were put within a minute, or
// another has replaced them.
func (l Last) Replace(ctx context.Context, etcd clientv3.KV, prefix string, now Counts, at time.Time) error {
	if maps.Equal(l.Of, now.Of) || l.Revision != 0 && at.Sub(l.At).Abs() < between {
		return nil
	}
	value := keyspace.Encode(Last{Version: valueVersion, At: at.UTC(), Of: now.Of})
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), readTime)
	defer cancel()
	_, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(LastKey(prefix)), "=", l.Revision)).
		Then(clientv3.OpPut(LastKey(prefix), value)).Commit()
	return txn.Denied(err)
}

// A Fall is a kind of which there are fewer than last time.
type Fall struct {
	Kind     Kind
	Was, Now int64
}

// explains has the operators' verbs after which there may be fewer of a kind.
var explains = map[Kind][]audit.Verb{
	QueuePauses: {audit.ResumeQueue},
	DeadLetters: {audit.Redrive, audit.RedriveAll, audit.Purge, audit.CancelItem},
	Jobs:        {audit.ForgetJob},
	Definitions: {audit.UndefineJob},
	JobPauses:   {audit.ResumeJob, audit.ForgetJob, audit.UndefineJob},
	TickRecords: {audit.ForgetJob},
	Groups:      {audit.RemoveGroup},
}

// moves are the kinds of which programs remove some without a record: they cancel dead letters and replace
// them, remove definitions, and keep fewer records. Only the loss of most of them is a fall.
var moves = map[Kind]bool{DeadLetters: true, Definitions: true, JobPauses: true, TickRecords: true}

// few is how many of such a kind can go without being missed.
const few = 3

// Falls returns the kinds of which there are fewer now, and no action of operators since explains that.
func (l Last) Falls(now Counts, since []audit.Record) (falls []Fall) {
	verbs := map[string]bool{}
	for _, r := range since {
		if r.Revision > l.Revision {
			verbs[r.Verb] = true
		}
	}
	for _, kind := range Kinds {
		f := Fall{kind, l.Of[kind], now.Of[kind]}
		explained := kind == DeadLetters && now.Trimmed > l.Revision
		for _, verb := range explains[kind] {
			explained = explained || verbs[verb.Name]
		}
		fell := f.Now < f.Was
		if moves[kind] {
			fell = f.Was > few && f.Now < f.Was/2
		}
		if fell && !explained {
			falls = append(falls, f)
		}
	}
	return falls
}
