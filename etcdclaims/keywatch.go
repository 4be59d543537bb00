package etcdclaims

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keyWatch is the watch of one key.
type keyWatch struct {
	news   clientv3.WatchChan
	turned <-chan struct{} // closed when its revisions may be others
	stop   context.CancelFunc
}

// watchKey watches the key from a revision on, or with 0 from now on.
func (c *Client) watchKey(ctx context.Context, key string, rev int64) *keyWatch {
	opts := []clientv3.OpOption{clientv3.WithRev(rev)}
	if rev == 0 {
		opts = append(opts, clientv3.WithCreatedNotify())
	}
	w := &keyWatch{turned: c.store.turns.next()}
	w.news, w.stop, _ = c.beginWatch(ctx, key, opts...)
	return w
}

// beginWatch begins a watch. It returns when etcd has created it, or with one
// that has ended if that took too long: nobody may be deaf because etcd does not
// answer.
func (c *Client) beginWatch(ctx context.Context, key string, opts ...clientv3.OpOption) (news clientv3.WatchChan, stop context.CancelFunc, begun bool) {
	ctx, stop = context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(c.store.timeout, stop)
	news = c.etcd.Watch(ctx, key, opts...)
	return news, stop, late.Stop()
}

var errWatch = errors.New("etcdclaims: etcd refuses to watch")

// begun waits until a watch from now on has begun.
func (w *keyWatch) begun(ctx context.Context, s *session) error {
	select {
	case resp, ok := <-w.news:
		if err := resp.Err(); err != nil {
			return fmt.Errorf("%w: %w", errWatch, err)
		}
		if !ok {
			return fmt.Errorf("%w: %w", errWatch, errNotSent)
		}
		return nil
	case <-s.dead:
		return errSessionLost
	case <-ctx.Done():
		return contextError(ctx)
	}
}
