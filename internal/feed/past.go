package feed

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// readings names the streams of Past.
var readings atomic.Int64

// Past calls f for the changes of keys from one revision up to another, in their order. If from
// is compacted, it returns the first revision that is not.
func Past(ctx context.Context, etcd clientv3.Watcher, key string, from, to int64, f func(*clientv3.Event),
	opts ...clientv3.OpOption,
) (compacted int64, err error) {
	// A stream of its own: a member answers requests for progress only if no watch on
	// the stream waits for a revision to come, as those of Watch do, or is behind, as
	// that of another call may be.
	ctx = OnStream(ctx, "past-"+strconv.FormatInt(readings.Add(1), 10))
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	opts = append(slices.Clone(opts), clientv3.WithRev(from), clientv3.WithCreatedNotify(), clientv3.WithFragment())
	watch := etcd.Watch(ctx, key, opts...)
	const again = 100 * time.Millisecond
	ask := time.NewTicker(again)
	defer ask.Stop()
	for {
		select {
		case resp, ok := <-watch:
			switch {
			case !ok && ctx.Err() != nil:
				return 0, context.Cause(ctx)
			case !ok:
				return 0, errors.New("the watch has ended")
			case resp.CompactRevision > 0:
				return resp.CompactRevision, nil
			case resp.Err() != nil:
				return 0, resp.Err()
			}
			// Events of one watch come in order. What follows an event or a
			// progress at the revision is newer.
			done := resp.IsProgressNotify() && resp.Header.Revision >= to
			for _, ev := range resp.Events {
				if ev.Kv.ModRevision <= to {
					f(ev)
				}
				done = done || ev.Kv.ModRevision >= to
			}
			if done {
				return 0, nil
			}
			if resp.Created {
				// The answer comes when the watch has caught up.
				if err := etcd.RequestProgress(ctx); err != nil {
					return 0, err
				}
			}
		case <-ask.C: // a member leaves a request unanswered while a watch catches up
			if err := etcd.RequestProgress(ctx); err != nil {
				return 0, err
			}
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
