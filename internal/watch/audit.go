package watch

import (
	"context"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// auditGrace is how long events that etcd had when it was audited may take to
// arrive.
const auditGrace = time.Second

// audit is a summary of the claims in etcd at one revision, just enough to show whether
// a watch has missed anything: how many keys there are, and which were put since the
// audit before. The keys that were put before are known to be right, by that one;
// so if the number is right, no claim was deleted.
type audit struct {
	rev   int64
	count int64
	puts  map[string]int64 // their ModRevision
}

// audit asks etcd what it has. Meanwhile no event is dealt with: the state known
// afterwards is from before that revision. It learns the epoch, too: after a
// restore a watch may be silent for long.
func (w *Watch[I]) audit(ctx context.Context) *audit {
	own := w.cfg.Own
	resp, err := w.cfg.Read(ctx,
		clientv3.OpGet(w.cfg.Epoch),
		clientv3.OpGet(own+w.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(own+w.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithMinModRev(w.audited+1), clientv3.WithKeysOnly()),
	)
	if err == nil {
		err = w.cfg.Learn(txn.Kvs(resp, 0), resp.Header.Revision)
	}
	if err != nil {
		w.cfg.Log.Debug("watch not compared with etcd", zap.String("prefix", w.cfg.Prefix), zap.Error(err))
		return nil
	}
	a := &audit{rev: resp.Header.Revision, count: txn.Count(resp, 1), puts: make(map[string]int64)}
	for _, kv := range txn.Kvs(resp, 2) {
		a.puts[strings.TrimPrefix(string(kv.Key), own)] = kv.ModRevision
	}
	return a
}

// missed reports whether the known state differs from that of etcd. If it does
// not, the audit is over.
func (w *Watch[I]) missed(a *audit) bool {
	if int64(len(w.known)) != a.count {
		return true
	}
	for key, rev := range a.puts {
		if fence, ok := w.known[key]; !ok || keyspace.Revision(fence) != rev {
			return true
		}
	}
	w.audited = a.rev
	return false
}
