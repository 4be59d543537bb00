package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keyWatch is the watch of one key.
type keyWatch struct {
	news clientv3.WatchChan
	stop context.CancelFunc
}

// watchKey watches the key from a revision on, or with 0 from now on.
func (c *Client) watchKey(ctx context.Context, key string, rev int64) *keyWatch {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	opts := []clientv3.OpOption{clientv3.WithRev(rev)}
	if rev == 0 {
		opts = append(opts, clientv3.WithCreatedNotify())
	}
	return &keyWatch{news: c.etcd.Watch(ctx, key, opts...), stop: cancel}
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
