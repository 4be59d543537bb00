package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
)

// job is what a process, worker or parent, needs to take part.
type job struct {
	Name            string
	Endpoints       []string
	Prefix          string // of all keys of this run
	Dir             string // of the log
	Events, Batches int
	Hold            bool // stop before a write until the claim is lost
}

// totalKey is the key of the total of a partition.
func (j job) totalKey(partition int) string { return fmt.Sprintf("%stotal/%03d", j.Prefix, partition) }

// event is what a worker tells its parent.
type event struct{ Kind, Worker, Text string }

const (
	isHolding  = "holding"
	wasRefused = "refused"

	leave = "leave" // an order
	pace  = 500 * time.Millisecond
)

// newClaims returns a client. A dead worker's partitions have another owner in 6 s.
func (j job) newClaims(etcd *clientv3.Client) (*etcdclaims.Client, error) {
	return etcdclaims.New(etcd, etcdclaims.Config{Prefix: j.Prefix + "claims/", Owner: j.Name, TTL: etcdclaims.MinTTL, Logger: demoetcd.Logger()})
}

type worker struct {
	job
	etcd *clientv3.Client
	send func(event)
	held chan struct{} // full if a handler holds a partition, or has
}

// runWorker is the whole of a worker process.
func runWorker(ctx context.Context, j job) error {
	etcd, err := demoetcd.Dial(j.Endpoints)
	if err != nil {
		return err
	}
	defer etcd.Close()
	claims, err := j.newClaims(etcd)
	if err != nil {
		return err
	}
	defer claims.Close(context.WithoutCancel(ctx))
	w := &worker{job: j, etcd: etcd, send: demoproc.Teller[event](), held: make(chan struct{}, 1)}
	member, err := group.Join(ctx, claims, group.Config{Group: "log", Partitions: partitions, Name: j.Name, Cooldown: time.Second, Logger: demoetcd.Logger()}, w.count)
	if err != nil {
		return err
	}
	ctx, orders := demoproc.Orders[string](ctx) // ends when the parent says so, or is gone
	select {
	case <-orders: // to leave
	case <-ctx.Done():
	case <-member.Done():
		return member.Err()
	}
	return member.Leave(context.WithoutCancel(ctx))
}

// count goes on with a partition where the last owner's total ends. Each write carries
// the fence, so a worker that was frozen meanwhile cannot overwrite the total of a later
// owner.
func (w *worker) count(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
	kv := etcdguard.NewKV(w.etcd, claim)
	resp, err := kv.Get(ctx, w.totalKey(partition))
	if err != nil {
		return err
	}
	var t total
	if len(resp.Kvs) > 0 {
		if err := json.Unmarshal(resp.Kvs[0].Value, &t); err != nil {
			return err
		}
	}
	for {
		next, err := t.add(w.Dir, partition, max(1, w.Events/partitions/w.Batches))
		if errors.Is(err, io.EOF) {
			<-ctx.Done() // all is counted; real logs go on
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		w.hold(partition, claim)
		value, err := json.Marshal(next)
		if err != nil {
			return err
		}
		_, err = kv.Put(context.WithoutCancel(ctx), w.totalKey(partition), string(value))
		switch {
		case errors.Is(err, fencing.ErrStale), errors.Is(err, etcdclaims.ErrLost):
			w.send(event{wasRefused, w.Name, fmt.Sprintf("cannot write the total of partition %d with fence %d: %v", partition, claim.Fence(), err)})
			return err
		case errors.Is(err, etcdclaims.ErrUnknown): // it may have been written
			return err // the next call reads it
		case err != nil:
			return err
		}
		t = next
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hold stops one handler until its claim is lost, as if the process were frozen right
// before the write. The parent freezes it meanwhile.
func (w *worker) hold(partition int, claim *etcdclaims.Claim) {
	if !w.Hold {
		return
	}
	select {
	case w.held <- struct{}{}:
		w.send(event{isHolding, w.Name, fmt.Sprintf("is about to write the total of partition %d with fence %d", partition, claim.Fence())})
		<-claim.Done()
	default:
	}
}
