package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// made makes the queue, with no session left.
func (w *world) made(cfg queue.Config) {
	w.Helper()
	q := w.queue(cfg)
	w.enqueue(q, "first")
	w.ok(q.Close(w.Context()))
}

// Reconfigure whose request or reply is lost does not know what came of it, and one that was
// carried out twice has succeeded.
func TestReconfigureUnderFaults(t *testing.T) {
	again := status.Error(codes.Unavailable, "there is no address available") // etcd's client sends it again
	for name, c := range map[string]struct {
		fault claimtest.Fault
		want  error
		taken int // afterwards
	}{
		"request lost":  {claimtest.Fault{LoseRequest: true}, etcdclaims.ErrUnknown, 1},
		"reply lost":    {claimtest.Fault{LoseReply: true}, etcdclaims.ErrUnknown, 2},
		"carried twice": {claimtest.Fault{LoseReply: true, Err: again}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				w.made(queue.Config{MaxTaken: 1})
				q, host := w.process(queue.Config{MaxTaken: 2})
				c.fault.On = claimtest.Other
				hit := host.Inject(c.fault)
				if err := q.Reconfigure(w.Context()); c.want == nil {
					w.ok(err)
				} else {
					w.wantErr(err, c.want)
				}
				w.want(hit.Hits(), 1)
				open, err := queue.Open(w.Context(), etcdClaims(w), "q")
				w.ok(err)
				w.want(open.Config().MaxTaken, c.taken)
				w.ok(open.Close(w.Context()))
				w.ok(q.Reconfigure(w.Context()))
				w.enqueue(q, "second")
			})
		})
	}
}

// A process that has read the spec, and has no session yet, does not use the queue as it was
// before Reconfigure. A spec that was deleted by hand meanwhile is put again.
func TestReconfigureBesideFirstUse(t *testing.T) {
	for name, deleted := range map[string]bool{"reconfigured": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				w.made(queue.Config{MaxTaken: 1})
				late, host := w.process(queue.Config{MaxTaken: 1})
				host.Inject(claimtest.Fault{On: claimtest.Acquire, DelayRequest: 2 * sec})
				used := make(chan error, 1)
				go func() {
					_, err := late.Enqueue(context.Background(), queue.NewItem(nil))
					used <- err
				}()
				time.Sleep(sec)
				if deleted {
					_, err := w.server.Admin().Delete(w.Context(), w.under("/spec")[0])
					w.ok(err)
					w.ok(<-used)
					w.want(len(w.under("/spec")), 1)
					return
				}
				w.ok(w.queue(queue.Config{MaxTaken: 2}).Reconfigure(w.Context()))
				w.wantErr(<-used, queue.ErrConfig)
				w.want(len(w.under("/worker/")), 0)
			})
		})
	}
}
