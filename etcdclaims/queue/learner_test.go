package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A learner, as when a member is replaced at its old address, refuses what it is asked before that is
// proposed. Work goes on.
func TestWorkOutlivesARefusalByALearner(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"learner":     status.Error(codes.Unavailable, "etcdserver: rpc not supported for learner"), // etcd 3.5
		"not capable": status.Error(codes.Unavailable, "etcdserver: not capable"),                   // etcd 3.5, a member that starts
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := claimtest.Start(t)
				host := server.Host(t)
				worker, err := queue.New(claimtest.NewClient(t, host, etcdclaims.Config{}), queue.Config{Name: "q"})
				if err != nil {
					t.Fatal(err)
				}
				producer, err := queue.New(claimtest.NewClient(t, server.Host(t), etcdclaims.Config{}), queue.Config{Name: "q"})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done, ended := make(chan string, 10), make(chan error, 1)
				go func() {
					ended <- worker.Work(ctx, queue.WorkerConfig{Handler: func(_ context.Context, l *queue.Delivery) error {
						done <- l.ID()
						return nil
					}})
				}()
				time.Sleep(5 * time.Second)
				// One transaction of the worker meets the learner.
				host.Inject(claimtest.Fault{On: claimtest.Every, Times: 1, Err: refusal, LoseRequest: true})
				host.Inject(claimtest.Fault{On: claimtest.Every, Err: refusal, LoseRequest: true, Times: 2})
				for range 3 {
					if _, err := producer.Enqueue(ctx, queue.NewItem([]byte("x"))); err != nil {
						t.Fatal(err)
					}
					time.Sleep(20 * time.Second)
				}
				select {
				case err := <-ended:
					t.Errorf("Work has ended: %v", err)
				default:
				}
				if len(done) != 3 {
					t.Errorf("%d items handled, want 3", len(done))
				}
				cancel()
				synctest.Wait()
				_, _ = worker.Close(context.Background()), producer.Close(context.Background())
			})
		})
	}
}

// A call that was refused by a learner, and by nobody else, is worth another try.
func TestEnqueueOutlivesARefusalByALearner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refusal := status.Error(codes.Unavailable, "etcdserver: rpc not supported for learner")
		server := claimtest.Start(t)
		host := server.Host(t)
		claims := claimtest.NewClient(t, host, etcdclaims.Config{})
		q, err := queue.New(claims, queue.Config{Name: "q"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Enqueue(t.Context(), queue.NewItem([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, call func() error) {
			host.Inject(claimtest.Fault{On: claimtest.Every, Err: refusal, LoseRequest: true})
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			host.RemoveFaults()
		}
		refused("enqueue", func() error { _, err := q.Enqueue(t.Context(), queue.NewItem([]byte("x"))); return err })
		var claim *etcdclaims.Claim
		refused("a waiting acquisition", func() (err error) { claim, err = claims.Acquire(t.Context(), "k"); return err })
		if claim != nil {
			// It was refused, so the outcome is known: the release can be sent again.
			refused("release", func() error {
				if err := claim.Release(t.Context()); errors.Is(err, etcdclaims.ErrUnknown) {
					return err
				}
				return nil
			})
		}
		_ = q.Close(context.Background())
	})
}
