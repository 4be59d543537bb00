package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/txn"
)

// As returns a context for calls that a person makes, for the records that [Actions] returns. who is
// the name of the person, and why the reason; both may be empty. Without As a call is recorded under the Owner of its client.
//
// Every call that is for operators is recorded: those of this package, and those that pause, resume, reset, reconfigure,
// evict, readmit or remove something, and Cancel and Forget of a Scheduler. So its user needs permission to read and
// write the keys below audit/. Programs make some calls, too: RunNow, Backfill, Define and Undefine of a Scheduler,
// Cancel, SetPriority, Redrive, RedriveAll and Purge of a Queue, Retry and Forget of a work.Runner. These are recorded
// only with As.
//
// The transaction that carries a call out puts the record: neither is there without the other. A call that changes
// nothing has no record. Nor has one that frees space while etcd is out of space.
func As(ctx context.Context, who, why string) context.Context { return audit.As(ctx, who, why) }

// Action is the record of what an operator did. Fields that do not concern it are empty.
type Action struct {
	Revision int64     // of etcd, at which it took effect
	At       time.Time // by the clock of the process that sent it
	Who      string
	Verb     string // the command of claimctl that does it, such as "queue dead purge"
	Key      string
	Group    string
	Job      string
	Member   string
	Queue    string
	Item     string
	Detail   string // such as how many items
	Why      string
	Err      error // why the record cannot be read, if a newer version wrote it: then only Revision and At are known
}

// Actions returns what operators have done since a time, at most n actions, newest first. The zero time
// means all that is known: at most 90 days, and 10,000 actions. An action removes up to a hundred of the
// oldest records beyond that.
//
// The order is that of At: an action of a host whose clock is behind stands further down than it should.
func Actions(ctx context.Context, claims *etcdclaims.Client, n int, since time.Time) ([]Action, error) {
	c := of(claims)
	if err := c.Refusal(); err != nil || claims.Passthrough() {
		return nil, err
	}
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	if n < 1 {
		return nil, fmt.Errorf("etcdclaims: %d actions: want 1 at least", n)
	}
	records, err := audit.Newest(ctx, c.KV(), claims.Prefix(), n, since)
	if err != nil {
		return nil, errtext.CallOfAll("list the actions of operators", txn.Denied(txn.WithCause(ctx, err)))
	}
	all := make([]Action, 0, len(records))
	for _, r := range records {
		all = append(all, Action{
			Revision: r.Revision,
			At:       r.At,
			Who:      r.Who,
			Verb:     r.Verb,
			Key:      r.Key,
			Group:    r.Group,
			Job:      r.Job,
			Member:   r.Member,
			Queue:    r.Queue,
			Item:     r.Item,
			Detail:   r.Detail,
			Why:      r.Why,
			Err:      r.Err,
		})
	}
	return all, nil
}
