package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
)

// job is what a process, producer, worker or parent, needs to take part.
type job struct {
	Name      string
	Endpoints []string
	Prefix    string // of all keys of this run
	Dir, Out  string // of pictures, and of thumbnails
	TTL       time.Duration
	Produce   bool // enqueue the pictures instead of handling them
	Hold      bool // keep an item until its lease is lost
}

// published is the key that says which file is the thumbnail of an item.
func (j job) published(item string) string { return j.Prefix + "published/" + item }

// thumbnail is what is stored there.
type thumbnail struct {
	File, Worker string
	Attempt      int
}

// event is what a producer or a worker tells its parent.
type event struct {
	Kind, Worker, Text string
	Added              int // items that a producer enqueued
}

const (
	hasEnqueued = "enqueued"
	isHolding   = "holding"
	wasRefused  = "refused" // Complete, after the lease was lost
	isDying     = "dying"
)

// withQueue calls f with the queue. A dead worker's items are visible again within the
// TTL and a second.
func (j job) withQueue(ctx context.Context, etcd *clientv3.Client, f func(q *queue.Queue) error) error {
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{
		Prefix: j.Prefix + "claims/", Owner: j.Name, AllowShortTTL: j.TTL < etcdclaims.MinTTL, Logger: demoetcd.Logger(),
	})
	if err != nil {
		return err
	}
	defer claims.Close(context.WithoutCancel(ctx))
	q, err := queue.New(claims, queue.Config{Name: "thumbnails", TTL: j.TTL, Logger: demoetcd.Logger()})
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
	w.send(event{Kind: kind, Worker: w.Name, Text: fmt.Sprintf(format, args...)})
}

// runProcess is the whole of a producer or worker process.
func runProcess(ctx context.Context, j job) error {
	etcd, err := demoetcd.Dial(j.Endpoints)
	if err != nil {
		return err
	}
	defer etcd.Close()
	return j.withQueue(ctx, etcd, func(q *queue.Queue) error {
		w := &worker{job: j, send: demoproc.Teller[event]()}
		if j.Produce {
			return w.produce(ctx, q)
		}
		ctx, _ := demoproc.Orders[string](ctx) // ends when the parent says so, or is gone
		return q.Work(ctx, queue.WorkerConfig{Concurrency: 1, Handler: w.handle})
	})
}

// produce enqueues all pictures. Their ids keep two producers from enqueuing one twice.
func (w *worker) produce(ctx context.Context, q *queue.Queue) error {
	items, err := listPictures(w.Dir)
	if err != nil {
		return err
	}
	added, err := q.EnqueueAll(ctx, items)
	if err == nil {
		w.send(event{hasEnqueued, w.Name, fmt.Sprintf("enqueued %d of %d pictures", added, len(items)), added})
	}
	return err
}

// listPictures returns an item for each picture. Its id is the path in the directory.
func listPictures(dir string) (items []queue.Item, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && slices.Contains([]string{".png", ".jpg", ".jpeg"}, strings.ToLower(filepath.Ext(name))) {
			items = append(items, queue.NewItem([]byte(filepath.Join(dir, name)), queue.ID(name)))
		}
		return err
	})
	return items, err
}

// handle makes a thumbnail and publishes it. Two workers can make one of the same
// picture at the same time, if one was frozen. So each writes a file of its own, named
// after its fence, and Complete publishes the file: it writes the key that names the
// file in the transaction that ends the item. That succeeds once.
func (w *worker) handle(ctx context.Context, l *queue.Delivery) error {
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
