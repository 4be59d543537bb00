package etcdclaims

import (
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// readOps reads why the key could not be taken, in the order of snapshot.
func (a *attempt) readOps() []clientv3.Op {
	st := a.s.c.store
	ops := []clientv3.Op{
		clientv3.OpGet(st.layout.own(a.key)),
		clientv3.OpGet(st.layout.waiting(a.lineKey()), clientv3.WithRange(a.lastBefore()), clientv3.WithCountOnly()),
		clientv3.OpGet(st.layout.epoch()),
	}
	if a.readsRecord() {
		ops = append(ops, clientv3.OpGet(st.layout.own(a.asked())))
	}
	if a.slots != nil {
		ops = append(ops, a.slots.readAll(st.layout))
	}
	if a.put != nil {
		ops = append(ops, clientv3.OpGet(a.put.Key))
	}
	return ops
}

// countWaiting reads how many wait in line for the key, or of them those whose ids have a
// prefix.
func (s *store) countWaiting(key string, id ...string) clientv3.Op {
	return clientv3.OpGet(s.layout.waiting(key)+strings.Join(id, ""), clientv3.WithPrefix(), clientv3.WithCountOnly())
}

// snapshot is what readOps reads.
type snapshot struct {
	own     *mvccpb.KeyValue
	beside  *mvccpb.KeyValue // the key beside it, if the attempt has one
	waiting int64
	epoch   []*mvccpb.KeyValue
	rev     int64

	record  *mvccpb.KeyValue   // of the slots or of the shared key, and
	slots   []*mvccpb.KeyValue // those that are held, if the attempt is for one
	refused bool               // although the key or slot that was tried was free
}

func (a *attempt) snapshot(resp *clientv3.TxnResponse) snapshot {
	v := snapshot{own: firstKV(resp, 0), epoch: resp.Responses[2].GetResponseRange().Kvs, rev: resp.Header.Revision}
	v.waiting = resp.Responses[1].GetResponseRange().Count
	next := 3
	if a.readsRecord() {
		v.record = firstKV(resp, next)
		next++
	}
	if a.slots != nil {
		v.slots = resp.Responses[next].GetResponseRange().Kvs
		next++
	}
	if a.put != nil {
		v.beside = firstKV(resp, next)
	}
	return v
}

// verdict returns what a snapshot means for the attempt: nil means to try again.
func (a *attempt) verdict(v snapshot) error {
	c := a.s.c
	if err := c.store.learnEpoch(v.epoch, v.rev); err != nil {
		return err
	}
	if !c.store.epoch.Load().Is(a.epoch) {
		return nil
	}
	if v.own != nil {
		if a.supersedes != nil && v.own.ModRevision == revision(a.supersedes.fence) && len(a.opts.cmps) > 0 {
			return fmt.Errorf("%w: superseding the claim on %q", ErrRefused, a.key)
		}
		if a.supersedes != nil {
			return nil // the own term has ended meanwhile; see again who holds it
		}
		return c.held(c.info(a.key, v.own, nil, v.waiting))
	}
	if a.put != nil && a.opts.beside.Changed(v.beside) {
		return nil
	}
	if v.waiting > 0 {
		return &HeldError{Info: Info{Key: a.key, Waiting: v.waiting}}
	}
	if len(a.opts.cmps) > 0 {
		return ErrRefused
	}
	return nil // what stood in the way is gone already
}
