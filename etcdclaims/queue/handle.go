package queue

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"weak"

	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Handle returns the delivery as text. With it another process of the same program can
// heartbeat, complete or fail the item: see [Queue.Adopt]. A handle is valid for this
// delivery alone. It is not a secret, and protects nothing. If the other process ends the
// delivery, this one learns that within about a minute, or by its next verb.
func (l *Delivery) Handle() string {
	_, held, _ := l.snapshot()
	return strings.Join([]string{"1", held.Session, strconv.FormatInt(held.Fence(), 10), held.State.ID}, ":")
}

// parseHandle reads a handle.
func parseHandle(text string) (sid string, fence int64, id string, err error) {
	parts := strings.SplitN(text, ":", 4)
	if len(parts) == 4 && parts[0] == "1" && len(parts[1]) == 36 {
		fence, err = strconv.ParseInt(parts[2], 10, 64)
		if err == nil && keyspace.Revision(fence) > 0 && parts[3] != "" && len(parts[3]) <= maxIDBytes {
			return parts[1], fence, parts[3], nil
		}
	}
	return "", 0, "", fmt.Errorf("handle %.100q is not one of a lease", text)
}

// Adopt returns the delivery of a handle (see [Delivery.Handle]) that another process of the
// same program has. With the delivery, this process can complete, fail or give back the
// item. Until Heartbeat moves the item to this process, it belongs to the session of the
// process that claimed it, and is lost with that session. Until then Check returns an
// error that matches etcdclaims.ErrUnknown, because only etcd knows whether the lease is
// held.
//
// A handle can be adopted several times. One verb of one of these deliveries is carried out,
// and only that call returns nil. All other calls return ErrCompleted or ErrSuperseded,
// even if they are of the same verb. Each adopted delivery stores a name with its verb,
// which identifies the call that was carried out. So Complete of an adopted delivery leaves
// a small key for a minute, unless the item's id is remembered for Config.Retention.
// Complete fails while etcd has no space for that key.
//
// An adopted delivery that is dropped without a verb is garbage collected; the item is not
// affected.
//
// Errors: ErrSuperseded if the delivery of the handle is over, ErrCompleted or ErrCancelled if the item
// was completed or cancelled, etcdclaims.ErrClosed, and those of reading from etcd.
func (q *Queue) Adopt(ctx context.Context, handle string) (*Delivery, error) {
	fail := func(err error) (*Delivery, error) { return nil, q.fail("adopt", err) }
	if err := q.closed(); err != nil {
		return fail(err)
	}
	sid, fence, id, err := parseHandle(handle)
	if err != nil {
		return fail(err)
	}
	key, rev := q.keys.TakenBy(sid)+id, keyspace.Revision(fence)
	resp, err := q.read(ctx, clientv3.OpGet(key), clientv3.OpGet(q.keys.Content(id)))
	if err != nil {
		return fail(err)
	}
	taken, contents := txn.Kvs(resp, 0), txn.Kvs(resp, 1)
	if len(taken) == 0 || taken[0].ModRevision != rev || len(contents) == 0 {
		end, err := q.endOf(ctx, key, id, rev)
		if err != nil {
			return fail(ErrSuperseded)
		}
		return fail(lost(end))
	}
	st, err := item.DecodeState(taken[0])
	if err != nil {
		return fail(err)
	}
	c, err := item.Decode[item.Content](contents[0].Key, contents[0].Value)
	if err != nil {
		return fail(err)
	}
	held := item.Held{Keys: q.keys, Session: sid, State: st, Rev: rev, Epoch: keyspace.Epoch(fence), By: uuid.NewString()}
	l := makeDelivery(q.holder, held, c)
	// A lease that its caller drops without a verb ends in etcd with its session. Nothing
	// here may keep it.
	dropped := weak.Make(l)
	stop := context.AfterFunc(q.ctx, func() {
		if l := dropped.Value(); l != nil {
			l.end(errClosed)
		}
	})
	context.AfterFunc(l.ctx, func() { stop() })
	runtime.AddCleanup(l, func(stop func() bool) { stop() }, stop)
	return l, nil
}
