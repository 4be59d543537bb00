package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/history"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// held chooses a key that somebody holds.
func (w *world) held() (key string, lease clientv3.LeaseID) { return w.heldUnder(prefix + "own/") }

// heldUnder chooses one whose key in etcd begins so.
func (w *world) heldUnder(own string) (key string, lease clientv3.LeaseID) {
	kvs := w.get(own, clientv3.WithPrefix()).Kvs
	if len(kvs) == 0 {
		return "", 0
	}
	kv := kvs[w.rng.IntN(len(kvs))]
	return string(kv.Key[len(prefix+"own/"):]), clientv3.LeaseID(kv.Lease)
}

// all are the keys that anybody may hold.
func (w *world) all() []string {
	all := append(slices.Concat(w.keys, pool()), hotKey)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.jobs + 1 {
		all = append(all, fmt.Sprintf("job%d", i))
	}
	return all
}

// takeAll records that something begins which may take any key away.
func (w *world) takeAll() (calls []*history.Call) {
	for _, key := range w.all() {
		calls = append(calls, w.history.Take(key))
	}
	return calls
}

// revoke ends a lease and all that is on it.
func (w *world) revoke(lease clientv3.LeaseID) {
	calls := w.takeAll()
	w.trace.revoke(lease)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := w.server.Admin().Revoke(ctx, lease)
	for _, call := range calls {
		call.Returned(err)
	}
}

func (w *world) revokeLease(*process) {
	if _, lease := w.held(); lease != 0 {
		w.revoke(lease)
	}
}

// atBirth revokes some sessions at the very revision after their first.
func (w *world) atBirth(lease clientv3.LeaseID) {
	if uint64(lease)%16 == w.plan.Seed%16 && !w.settling.Load() {
		w.count("fault: session revoked at birth")
		w.later.Go(func() { w.revoke(lease) })
	}
}

// take does something to the key in etcd of a claim, by somebody's hand.
func (w *world) take(key string, h how) {
	call := w.history.Take(key)
	own := testclaims.Key("", key)
	op := clientv3.OpDelete(own)
	if h == overwritten {
		op = clientv3.OpPut(own, overwriting)
	}
	w.admin(fmt.Sprintf("%s of %s", h, own), func(ctx context.Context, etcd *clientv3.Client) error {
		resp, err := etcd.Txn(ctx).Then(op).Commit()
		if err != nil {
			return err
		}
		for _, did := range resp.Responses { // to op alone
			if del := did.GetResponseDeleteRange(); del == nil || del.Deleted > 0 {
				w.trace.take(own, resp.Header.Revision, h)
			}
		}
		return nil
	})
	call.Done()
}

func (w *world) deleteKey(*process) {
	if key, _ := w.held(); key != "" {
		w.take(key, deleted)
	}
}

// overwriting is what a key is overwritten with.
const overwriting = "not a claim"

// overwriteKey makes a claim that nobody has and no lease ends, as any other
// program could; then somebody clears that up.
func (w *world) overwriteKey(*process) {
	key, _ := w.held()
	if key == "" {
		return
	}
	w.take(key, overwritten)
	time.Sleep(between(w.rng, 0, 5*time.Second))
	w.take(key, deleted)
}
