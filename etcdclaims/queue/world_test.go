package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	sec = time.Second
	ttl = 10 * sec
)

// world is one etcd in virtual time, with a queue.
type world struct {
	*testing.T
	server *claimtest.Server
}

// virtually runs the test in a world of its own.
func virtually(t *testing.T, f func(w *world), opts ...claimtest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(&world{T: t, server: claimtest.Start(t, opts...)}) })
}

// process returns access to the queue from a machine of its own, to which things can
// happen.
func (w *world) process(cfg queue.Config) (*queue.Queue, *claimtest.Host) {
	w.Helper()
	host := w.server.Host(w.T)
	if cfg.Name == "" {
		cfg.Name = "q"
	}
	if cfg.TTL == 0 {
		cfg.TTL = ttl
	}
	claims := claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: fmt.Sprintf("host-%p", host)})
	q, err := queue.New(claims, cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		host.RemoveFaults()
		host.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), 10*sec)
		defer cancel()
		if err := q.Close(ctx); err != nil && !errors.Is(err, etcdclaims.ErrLost) && !errors.Is(err, etcdclaims.ErrReleased) {
			w.Logf("close: %v", err)
		}
	})
	return q, host
}

func (w *world) queue(cfg queue.Config) *queue.Queue {
	w.Helper()
	q, _ := w.process(cfg)
	return q
}

func (w *world) enqueue(q *queue.Queue, id string, opts ...queue.ItemOption) {
	w.Helper()
	added, err := q.Enqueue(w.Context(), queue.NewItem([]byte("payload of "+id), append(opts, queue.ID(id))...))
	if err != nil || !added {
		w.Fatalf("enqueue %q: %v, %v", id, added, err)
	}
}

func (w *world) tryClaim(q *queue.Queue, n int) []*queue.Delivery {
	w.Helper()
	b, err := q.TryClaim(w.Context(), n)
	if err != nil {
		w.Fatal("claim: ", err)
	}
	return b.Deliveries
}

// claim claims one item, which must be there.
func (w *world) claim(q *queue.Queue) *queue.Delivery {
	w.Helper()
	got := w.tryClaim(q, 1)
	if len(got) != 1 {
		w.Fatalf("claimed %d items, want 1", len(got))
	}
	return got[0]
}

func ids(leases []*queue.Delivery) string {
	var out []string
	for _, l := range leases {
		out = append(out, l.ID())
	}
	return strings.Join(out, " ")
}

func (w *world) want(got, want any) {
	w.Helper()
	if got != want {
		w.Errorf("got %v, want %v", got, want)
	}
}

func (w *world) wantErr(err error, want error) {
	w.Helper()
	if !errors.Is(err, want) {
		w.Errorf("got error %v, want %v", err, want)
	}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) look(q *queue.Queue, id string) queue.Info {
	w.Helper()
	info, err := q.Look(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return info
}

// under returns the keys below the queue's own prefix that contain part.
func (w *world) under(part string) []string {
	w.Helper()
	resp, err := w.server.Admin().Get(context.Background(), "/etcdclaims/queue/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), part) {
			out = append(out, string(kv.Key))
		}
	}
	return out
}
