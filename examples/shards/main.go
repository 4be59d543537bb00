// Shards has three members of a group count in twelve partitions. A fourth member joins and gets
// its share; the first one leaves, and others go on where it was. What it writes late is refused.
//
//	go run ./examples/shards # in an etcd of its own
//	go run ./examples/shards -endpoints http://localhost:2379
//
// Here the members share a process. In production each process of a service is a member.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const partitions = 12

func main() { demoetcd.Main("shards", run) }

// process is what each process of the service would have.
type process struct {
	*group.Member
	etcd   *clientv3.Client
	claims *etcdclaims.Client
	prefix string // of all keys

	mu   sync.Mutex
	late func() error // writes once more, under a claim that it had
}

func run(ctx context.Context, etcd *clientv3.Client, prefix string, out io.Writer) error {
	var all []*process
	join := func() error {
		p, err := join(ctx, etcd, fmt.Sprint("member-", len(all)+1), prefix)
		if err == nil {
			all = append(all, p)
		}
		return err
	}
	defer func() {
		for _, p := range all {
			_ = p.claims.Close(context.WithoutCancel(ctx)) // leaves the group, too
		}
	}()
	for range 3 {
		if err := join(); err != nil {
			return err
		}
	}
	// What is shown is what a caller sees that is not a member.
	view, err := group.Open(ctx, all[0].claims, "counters")
	if err != nil {
		return err
	}
	defer view.Close()
	if err := await(ctx, view, out, 4, 4, 4); err != nil {
		return err
	}
	if err := join(); err != nil {
		return err
	}
	if err := await(ctx, view, out, 3, 3, 3, 3); err != nil {
		return err
	}
	first := all[0]
	if err := first.Leave(ctx); err != nil {
		return err
	}
	if err := await(ctx, view, out, 4, 4, 4); err != nil {
		return err
	}
	err = first.late()
	fmt.Fprintln(out, "the late write of member-1 is refused:", errors.Is(err, fencing.ErrStale))
	for _, p := range all[1:] {
		if err := p.Leave(ctx); err != nil {
			return err
		}
	}
	return verify(ctx, etcd, prefix, out)
}

func join(ctx context.Context, etcd *clientv3.Client, name, prefix string) (*process, error) {
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix + "claims/", Owner: name, Logger: demoetcd.Logger()})
	if err != nil {
		return nil, err
	}
	p := &process{etcd: etcd, claims: claims, prefix: prefix}
	cfg := group.Config{Group: "counters", Partitions: partitions, Name: name, Cooldown: time.Second, Logger: demoetcd.Logger()}
	if p.Member, err = group.Join(ctx, claims, cfg, p.count); err != nil {
		return nil, errors.Join(err, claims.Close(ctx))
	}
	return p, nil
}

// count goes on with a partition where its last owner has stopped, until ctx ends. The partition
// has another owner then, or the process leaves.
func (p *process) count(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
	p.mu.Lock()
	p.late = func() error {
		// A request that is already on its way has only its token.
		bearer := etcdguard.Bearer(p.prefix+"claims/", claim.Token())
		return p.put(context.WithoutCancel(ctx), partition, bearer, 1000)
	}
	p.mu.Unlock()
	total, err := p.total(ctx, partition)
	for err == nil {
		total++
		err = p.put(context.WithoutCancel(ctx), partition, claim, total)
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
	return err // the next call reads what was written
}

func (p *process) key(partition int) string { return fmt.Sprintf("%stotal/%02d", p.prefix, partition) }

func (p *process) total(ctx context.Context, partition int) (int, error) {
	resp, err := p.etcd.Get(ctx, p.key(partition))
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return strconv.Atoi(string(resp.Kvs[0].Value))
}

// put writes a total under a fence: etcd refuses it after a later owner's.
func (p *process) put(ctx context.Context, partition int, under etcdguard.Holder, total int) error {
	_, err := etcdguard.NewKV(p.etcd, under).Put(ctx, p.key(partition), strconv.Itoa(total))
	return err
}

// await waits until members own these numbers of partitions.
func await(ctx context.Context, view *group.View, out io.Writer, want ...int) error {
	for a := range view.Watch(ctx) {
		owned := map[string]int{}
		for _, o := range a.Owners {
			owned[o.Member]++
		}
		var got []int
		var text string
		for _, m := range a.Members {
			got = append(got, owned[m.Name])
			text += fmt.Sprintf(" %s %d", m.Name, owned[m.Name])
		}
		if slices.Equal(got, want) {
			_, err := fmt.Fprintln(out, "partitions:"+text)
			return err
		}
	}
	return context.Cause(ctx)
}

// verify returns an error if a total was not written one by one.
func verify(ctx context.Context, etcd *clientv3.Client, prefix string, out io.Writer) error {
	resp, err := etcd.Get(ctx, prefix+"total/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		if string(kv.Value) != fmt.Sprint(kv.Version) { // etcd counts how often a key was written
			return fmt.Errorf("%s is %s after %d writes", kv.Key, kv.Value, kv.Version)
		}
	}
	if len(resp.Kvs) != partitions {
		return fmt.Errorf("%d totals", len(resp.Kvs))
	}
	_, err = fmt.Fprintln(out, "each partition was counted one by one")
	return err
}
