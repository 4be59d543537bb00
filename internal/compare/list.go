package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// list is items below a prefix, each put and taken under one Mutex.
type list struct {
	*shared
	session      *concurrency.Session
	lock, prefix string
	numbers      *atomic.Int64 // of items, shared by all clients of the list

	// Workers of one session do not exclude each other by a Mutex of one key.
	turn sync.Mutex
}

func openList(ctx context.Context, st *stage) (*list, error) {
	s, all, err := shareSession(ctx, st)
	return &list{shared: s, session: all, lock: prefix(), prefix: prefix(), numbers: new(atomic.Int64)}, err
}

// join opens another client of the list.
func (l *list) join(ctx context.Context, st *stage) (*list, error) {
	s, all, err := shareSession(ctx, st)
	return &list{shared: s, session: all, lock: l.lock, prefix: l.prefix, numbers: l.numbers}, err
}

func (l *list) shut() {
	_ = l.session.Close()
	hangUp(l.etcd)
}

// under calls f while the client has the Mutex.
func (l *list) under(ctx context.Context, f func() error) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	m := concurrency.NewMutex(l.session, l.lock)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	return errors.Join(f(), m.Unlock(ctx))
}

func (l *list) put(ctx context.Context) error {
	return l.under(ctx, func() error {
		_, err := l.etcd.Put(ctx, fmt.Sprintf("%s%020d", l.prefix, l.numbers.Add(1)), "payload")
		return err
	})
}

// take takes the first item, if there is one, and calls taken.
func (l *list) take(ctx context.Context, taken func()) error {
	return l.under(ctx, func() error {
		resp, err := l.etcd.Get(ctx, l.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1))
		if err != nil || len(resp.Kvs) == 0 {
			return err
		}
		if _, err = l.etcd.Delete(ctx, string(resp.Kvs[0].Key)); err == nil {
			taken()
		}
		return err
	})
}

// listCycle has workers put an item into a list, and take the first one from it.
func listCycle(ctx context.Context, st *stage, n int) (contender, error) {
	l, err := openList(ctx, st)
	if err != nil {
		return nil, err
	}
	return &driven{
		shape: st.shape(n), sent: l.requests, etcd: st.etcdTime(), shut: l.shut,
		step: func(ctx context.Context, _ int) error {
			if err := l.put(ctx); err != nil {
				return err
			}
			return l.take(ctx, func() {})
		},
	}, nil
}

func listEnqueue(ctx context.Context, st *stage, n int) (contender, error) {
	l, err := openList(ctx, st)
	if err != nil {
		return nil, err
	}
	return &driven{
		shape: st.shape(n), sent: l.requests, etcd: st.etcdTime(), shut: l.shut,
		step: func(ctx context.Context, _ int) error { return l.put(ctx) },
	}, nil
}

// pickUpFromList measures how long an item takes to a worker of another client. That client
// watches the list, and wakes one of its workers for each item, which favors it: workers
// in many clients would all be woken.
func pickUpFromList(ctx context.Context, st *stage, n int) (contender, error) {
	from, err := openList(ctx, st)
	if err != nil {
		return nil, err
	}
	to, err := from.join(ctx, st)
	if err != nil {
		from.shut()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	woken, got := make(chan struct{}, n), make(chan struct{}, n)
	news := to.etcd.Watch(ctx, from.prefix, clientv3.WithPrefix(), clientv3.WithFilterDelete())
	var workers sync.WaitGroup
	workers.Go(func() {
		defer close(woken)
		for resp := range news {
			for range resp.Events {
				woken <- struct{}{}
			}
		}
	})
	for range n {
		workers.Go(func() {
			for range woken {
				_ = to.take(ctx, func() { got <- struct{}{} }) // what is not taken is seen as an outlier
			}
		})
	}
	return &driven{
		shape: st.shape(1), sent: from.requests, etcd: st.etcdTime(),
		step: func(ctx context.Context, _ int) error {
			if err := from.put(ctx); err != nil {
				return err
			}
			return heard(ctx, got)
		},
		shut: func() {
			cancel()
			workers.Wait()
			to.shut()
			from.shut()
		},
	}, nil
}
