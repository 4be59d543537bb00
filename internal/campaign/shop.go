package main

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/etcdclaims/claims/internal/retry"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A shop submits work items, which are open until a worker completes them, and
// remembers those that etcd has acknowledged.
type shop struct {
	members    *members
	submitting sync.WaitGroup
	stop       context.CancelFunc

	mu    sync.Mutex
	items []string
}

func openShop(m *members) *shop {
	ctx, stop := context.WithCancel(context.Background())
	s := &shop{members: m, stop: stop}
	s.submitting.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			s.submit(ctx, strconv.Itoa(n))
			retry.Sleep(ctx, itemEvery)
		}
	})
	return s
}

// submit tries until it has an answer: to put an item that is open already
// changes nothing, and one that is done already is not opened again.
func (s *shop) submit(ctx context.Context, item string) {
	err := s.members.insist(ctx, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(donePrefix+item), "=", 0)).
			Then(clientv3.OpPut(openPrefix+item, "")).
			Commit()
		return err
	})
	if err != nil {
		return // the run is over
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items = append(s.items, item)
}

// rest ends the submitting.
func (s *shop) rest() {
	s.stop()
	s.submitting.Wait()
}

func (s *shop) close() { s.rest() }

// open returns how many items are not done yet.
func (s *shop) open(ctx context.Context) (n int, err error) {
	err = s.members.ask(ctx, func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Get(ctx, openPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			n = int(resp.Count)
		}
		return err
	})
	return n, err
}

func (s *shop) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}

func (s *shop) submitted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.items)
}
