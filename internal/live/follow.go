package live

import (
	"context"
	"strconv"
	"sync"
	"time"

	watchfeed "github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Restart makes the view empty until all keys are read again. It is called before each Follow:
// what changed since the one before is not known. There are no feeds then.
func (v *View) Restart() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.kvs)
	clear(v.count)
	clear(v.begun)
	if v.IsSynced() {
		v.Synced = make(chan struct{})
	}
}

// Follow keeps the view up to date until ctx ends. It returns an error only if
// retrying is useless.
func (v *View) Follow(ctx context.Context) error {
	ctx = clientv3.WithRequireLeader(ctx)
	for try := 0; ctx.Err() == nil; try++ {
		rev, err := v.List(ctx)
		if err != nil {
			if v.ends.Judge(reading, err, zap.String("etcd_key", v.root)) {
				return err
			}
			retry.Pause(ctx, try)
			continue
		}
		if v.watch(ctx, rev) {
			try = -1
		} else {
			retry.Pause(ctx, try)
		}
	}
	return nil
}

// List reads all keys.
func (v *View) List(ctx context.Context) (rev int64, err error) {
	since := v.Latest()
	resp, err := retry.Get(ctx, v.etcd, readTime, clientv3.OpGet(v.root, clientv3.WithPrefix()))
	if err != nil {
		return 0, txn.Denied(err)
	}
	v.ends.Succeed(reading)
	rev = resp.Header.Revision
	v.replace(resp.Kvs, since, rev)
	return rev, nil
}

// watch follows the changes after the revision, and reads all keys from time to time.
// It returns when the watch must be started anew, and reports whether it worked.
//
// clientv3 returns from Watch when etcd has created the watch, so a member that hangs
// would keep this goroutine from reading. Therefore the watch begins beside the reads.
func (v *View) watch(ctx context.Context, rev int64) (well bool) {
	ctx, cancel := context.WithCancel(ctx)
	begun, begins := make(chan clientv3.WatchChan, 1), v.streamed(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		begun <- v.watcher.Watch(begins, v.root, clientv3.WithPrefix(), clientv3.WithRev(rev+1))
	})
	defer wg.Wait()
	defer cancel()
	again := time.NewTicker(relist)
	defer again.Stop()
	var news clientv3.WatchChan
	for {
		select {
		case <-ctx.Done():
			return true
		case news = <-begun:
		case resp, ok := <-news:
			if !ok || resp.Err() != nil {
				return well
			}
			well = true
			v.hear(resp.Events)
		case <-v.rewind:
			return false // the watch waits for revisions of the time before the restore
		case <-again.C:
			_, err := v.List(ctx)
			if err != nil && !oplog.IsDenied(err) && ctx.Err() == nil {
				v.ends.Fail(reading, err, zap.String("etcd_key", v.root))
			}
			if err != nil {
				return false
			}
			if news == nil {
				v.stream++
				v.log.Debug("watch stream hangs; a new one is opened", zap.String("etcd_key", v.root))
				return false
			}
		}
	}
}

// streamed returns the context of a watch, on a new stream after a watch that could not
// begin.
func (v *View) streamed(ctx context.Context) context.Context {
	if v.stream == 0 {
		return ctx
	}
	return watchfeed.OnStream(ctx, "sched-"+strconv.Itoa(v.stream))
}

// hear takes over the events of a watch.
func (v *View) hear(events []*clientv3.Event) {
	for _, ev := range events {
		if ev.Type == clientv3.EventTypeDelete {
			v.Remove(string(ev.Kv.Key), ev.Kv.ModRevision)
		} else {
			v.Put(string(ev.Kv.Key), string(ev.Kv.Value), ev.Kv.ModRevision)
		}
	}
}
