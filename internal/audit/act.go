package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// person is who makes the calls with a context.
type person struct {
	who, why string
	part     bool // the calls are part of an action that has its record
}

type personKey struct{}

func personOf(ctx context.Context) person {
	p, _ := ctx.Value(personKey{}).(person)
	return p
}

// As returns a context for the calls of a person, with the reason for them.
func As(ctx context.Context, who, why string) context.Context {
	return context.WithValue(ctx, personKey{}, person{who: who, why: why})
}

// Part returns a context for calls that are part of an action. They have no records of their own.
func Part(ctx context.Context) context.Context {
	return context.WithValue(ctx, personKey{}, person{part: true})
}

// Act is an action that is to be recorded. A nil Act is one that is not.
type Act struct {
	kv     clientv3.KV
	prefix string
	key    string
	record Record
	put    atomic.Bool // a request with the record was made
}

// Who returns the label under which a call is recorded: of the person that As names, or of the client.
func Who(ctx context.Context, claims *etcdclaims.Client) string {
	return limit(cmp.Or(personOf(ctx).who, claims.Owner()))
}

// Begin returns an action on a target. The reason why is that of the call, if it takes one; that of As goes first.
func Begin(ctx context.Context, claims *etcdclaims.Client, v Verb, on Target, why string) *Act {
	if passthrough.Refuse(claims) != nil {
		return nil
	}
	c := core.Of(claims)
	return BeginOn(ctx, c.KV(), claims.Prefix(), claims.Owner(), c.Now(), v, on, why)
}

// BeginOn is Begin without a client of claims. Without As, the action is that of who.
func BeginOn(ctx context.Context, kv clientv3.KV, prefix, who string, now time.Time, v Verb, on Target, why string) *Act {
	is := personOf(ctx)
	if is.part || v.Programs && is.who == "" {
		return nil
	}
	if is.who != "" && why == is.who { // the page gives the person for want of a reason
		why = ""
	}
	on.Detail = limit(on.Detail)
	return &Act{
		kv:     kv,
		prefix: prefix,
		key:    Under(prefix) + keyspace.Instant(now) + "-" + uuid.NewString(),
		record: Record{
			Version: valueVersion,
			At:      now.UTC(),
			Who:     limit(cmp.Or(is.who, who)),
			Verb:    v.Name,
			Target:  on,
			Why:     limit(cmp.Or(is.why, why)),
		},
	}
}

// Detail sets what only the requests of the action know.
func (a *Act) Detail(format string, args ...any) {
	if a != nil {
		a.record.Detail = limit(fmt.Sprintf(format, args...))
	}
}

// Ops returns what the transaction that carries out the action does beside it: one put, or nothing.
func (a *Act) Ops() []clientv3.Op {
	if a == nil {
		return nil
	}
	a.put.Store(true)
	return []clientv3.Op{clientv3.OpPut(a.key, keyspace.Encode(a.record))}
}

// With returns a transaction that does that, too, after what it does already. The given one stays as it is.
func (a *Act) With(in *pb.TxnRequest) *pb.TxnRequest {
	if a == nil {
		return in
	}
	a.put.Store(true)
	put := txn.Put([]byte(a.key), keyspace.Encode(a.record), clientv3.NoLease)
	return &pb.TxnRequest{Compare: in.Compare, Success: append(slices.Clip(in.Success), put), Failure: in.Failure}
}

// Send calls send for a request that frees space. Beyond its quota etcd refuses whatever puts a key. The action
// may be what makes room, so send is then called with nil: it leaves no record.
func Send[R any](a *Act, send func(*Act) (R, error)) (R, error) {
	resp, err := send(a)
	if a == nil || !errors.Is(err, rpctypes.ErrNoSpace) {
		return resp, err
	}
	unsure := errors.Is(err, etcdclaims.ErrUnknown)
	resp, err = send(nil)
	return resp, txn.AfterSent(unsure, err)
}

// End ends the action with the error of its call. If it was recorded, the oldest records are removed as far as
// they are beyond the bounds. If etcd denied the record, the error names the permission.
func (a *Act) End(ctx context.Context, err error) error {
	switch {
	case a == nil || !a.put.Load():
	case err == nil:
		a.trim(ctx)
	case txn.IsDenied(err) && a.denied(ctx):
		a.put.Store(false) // it is said once
		return fmt.Errorf("%w: an operator's call is recorded: grant readwrite on %q (docs/permissions.md)", err, Under(a.prefix))
	}
	return err
}

// Outcome adds to the detail of a record that was put, after an action of many requests.
func (a *Act) Outcome(ctx context.Context, format string, args ...any) {
	if a == nil || !a.put.Load() {
		return
	}
	a.Detail("%s", strings.TrimPrefix(a.record.Detail+", "+fmt.Sprintf(format, args...), ", "))
	ctx, cancel := a.beside(ctx)
	defer cancel()
	// What was put stays true without it. The record is not made anew if the transaction did not put it.
	_, _ = a.kv.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(a.key), ">", 0)).Then(a.Ops()...).Commit()
}

// Withdraw removes the record of an action that has turned out to change nothing.
func (a *Act) Withdraw(ctx context.Context) {
	if a == nil || !a.put.Swap(false) {
		return
	}
	ctx, cancel := a.beside(ctx)
	defer cancel()
	_, _ = a.kv.Delete(ctx, a.key) // the next look at one that stays shows no items
}

// denied reports whether etcd refuses to let the client's user put the record. Without conditions the other
// branch is never taken, and its permissions are checked.
func (a *Act) denied(ctx context.Context) bool {
	ctx, cancel := a.beside(ctx)
	defer cancel()
	_, err := a.kv.Txn(ctx).Else(a.Ops()...).Commit()
	return txn.IsDenied(err)
}

// besideTime bounds a request beside the action. The action waits for it, and does not depend on it.
const besideTime = 2 * time.Second

func (a *Act) beside(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(context.WithoutCancel(ctx)), besideTime)
}
