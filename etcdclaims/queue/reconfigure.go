package queue

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Reconfigure makes the order and the bounds of this Config those of the queue: HigherFirst,
// MaxTaken, MaxWaiting and KeyLimit. It is for a queue that all processes have closed. Those that have
// not, and have claimed or enqueued before, may go on with what they know. Calling again is
// safe.
//
// The error matches ErrInUse, and nothing was changed, while a process has a session in the
// queue, or a worker has an item. It also does if HigherFirst changes while the queue has items
// or dead letters: the order is part of their keys. It does, too, if KeyLimit falls while an item has a turn of
// its partition key: complete or cancel these items first. It matches ErrNotFound if there is no queue, and
// etcdclaims.ErrUnknown if the reply was lost: call again.
func (q *Queue) Reconfigure(ctx context.Context) error {
	act := q.act(ctx, audit.Reconfigure, "", "")
	return q.fail("reconfigure", act.End(ctx, q.reconfigure(ctx, act)))
}

func (q *Queue) reconfigure(ctx context.Context, act *audit.Act) error {
	want, key := q.spec(), q.keys.Spec()
	resp, err := q.read(ctx, clientv3.OpGet(key))
	if err != nil {
		return err
	}
	kvs := txn.Kvs(resp, 0)
	have, there, _, err := known(kvs, nil)
	switch {
	case err != nil:
		return err
	case !there:
		return errNoQueue
	case have != want:
		unused := []string{q.keys.Workers(), q.keys.Taken()}
		if have.HigherFirst != want.HigherFirst {
			unused = append(unused, q.keys.Ready(), q.keys.Later(), q.keys.Behind(), q.keys.Dead())
		}
		if have.LaneLimit() > want.LaneLimit() {
			unused = append(unused, q.keys.Lanes())
		}
		cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision)}
		for _, prefix := range unused {
			cmps = append(cmps, absent(prefix).WithPrefix())
		}
		limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
		defer cancel()
		done, err := core.Of(q.claims).KV().Txn(limited).If(cmps...).
			Then(append(act.Ops(), clientv3.OpPut(key, item.Encode(want)))...).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return txn.Outcome(ctx, txn.Unanswered(ctx, err))
		}
		// etcd's client may have sent the request twice, and this is the answer to the second.
		if !done.Succeeded {
			now, _, _, err := known(txn.Kvs(done, 0), nil)
			if err != nil || now != want {
				return fmt.Errorf("%w: %s", ErrInUse, against(have, want))
			}
		}
	}
	q.specOK.Store(true)
	return nil
}
