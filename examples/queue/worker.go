package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/examples/internal/demoproc"
	"github.com/etcdclaims/claims/internal/demoetcd"
)

// job is what a process, worker or parent, needs to take part.
type job struct {
	Name      string
	Endpoints []string
	Prefix    string // of all keys of this run
	Dir, Out  string // of pictures, and of thumbnails
	Hold      bool   // keep an item until its lease is lost
}

// published is the key that says which file is the thumbnail of an item.
func (j job) published(item string) string { return j.Prefix + "published/" + item }

// thumbnail is what is stored there.
type thumbnail struct {
	File, Worker string
	Attempt      int
}

// event is what a worker tells its parent.
type event struct{ Kind, Worker, Text string }

const (
	isHolding  = "holding"
	wasRefused = "refused" // Complete, after the lease was lost
	isDying    = "dying"
)

// withQueue calls f with the queue. A dead worker's items are visible again in 6 s.
func (j job) withQueue(ctx context.Context, etcd *clientv3.Client, f func(q *queue.Queue) error) error {
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: j.Prefix + "claims/", Owner: j.Name, Logger: demoetcd.Logger()})
	if err != nil {
		return err
	}
	defer claims.Close(context.WithoutCancel(ctx))
	q, err := queue.New(claims, queue.Config{Name: "thumbnails", TTL: etcdclaims.MinTTL, Logger: demoetcd.Logger()})
	if err != nil {
		return err
	}
	return errors.Join(f(q), q.Close(context.WithoutCancel(ctx)))
}

type worker struct {
	job
	send func(event)
}

func (w *worker) tell(kind, format string, args ...any) {
	w.send(event{kind, w.Name, fmt.Sprintf(format, args...)})
}

// runWorker is the whole of a worker process.
func runWorker(ctx context.Context, j job) error {
	etcd, err := demoetcd.Dial(j.Endpoints)
	if err != nil {
		return err
	}
	defer etcd.Close()
	return j.withQueue(ctx, etcd, func(q *queue.Queue) error {
		w := &worker{job: j, send: demoproc.Teller[event]()}
		ctx, _ := demoproc.Orders[string](ctx) // ends when the parent says so, or is gone
		return q.Work(ctx, queue.WorkerConfig{Concurrency: 1, Handler: w.handle})
	})
}

// handle makes a thumbnail and publishes it. Two workers can make one of the same
// picture at the same time, if one was frozen. So each writes a file of its own, named
// after its fence, and Complete publishes the file: it writes the key that names the
// file in the transaction that ends the item. That succeeds once.
func (w *worker) handle(ctx context.Context, l *queue.Lease) error {
	file := fmt.Sprintf("%s.%d.png", strings.ReplaceAll(l.ID(), "/", "_"), l.Fence())
	err := scale(string(l.Payload()), filepath.Join(w.Out, file))
	switch {
	case errors.Is(err, errMemory): // do what the kernel would do
		w.tell(isDying, "opens %s and is killed by it: attempt %d, fence %d", l.ID(), l.Attempt(), l.Fence())
		os.Exit(137)
	case err != nil:
		return etcdclaims.Permanent(err) // another attempt would fail, too
	}
	if w.Hold {
		w.tell(isHolding, "holds %s (fence %d)", l.ID(), l.Fence())
		<-l.Done() // the parent kills or freezes the process meanwhile
		w.Hold = false
	}
	value, err := json.Marshal(thumbnail{file, w.Name, l.Attempt()})
	if err != nil {
		return err
	}
	err = l.Complete(context.WithoutCancel(ctx), clientv3.OpPut(w.published(l.ID()), string(value)))
	if errors.Is(err, etcdclaims.ErrLost) {
		w.tell(wasRefused, "cannot publish %s: %v", file, err)
		_ = os.Remove(filepath.Join(w.Out, file))
	}
	return err
}
