package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// semaphore is the algorithm of Consul's semaphore (hashicorp/consul, api/semaphore.go) on
// etcd. Each contender has a key on its session. One more key lists the holders, and is
// changed by compare and swap. Whoever does not get in waits for a change of any of them.
// Entries of contenders whose session has ended are dropped by the next who writes.
type semaphore struct {
	etcd    *clientv3.Client
	session *concurrency.Session
	prefix  string
	limit   int
}

// holders is the value of the list, with the session's key as the name of each.
type holders map[string]bool

func (s *semaphore) list() string      { return s.prefix + ".lock" }
func (s *semaphore) contender() string { return fmt.Sprintf("%s%x", s.prefix, s.session.Lease()) }

func (s *semaphore) acquire(ctx context.Context) error {
	if _, err := s.etcd.Put(ctx, s.contender(), "", clientv3.WithLease(s.session.Lease())); err != nil {
		return err
	}
	for {
		held, rev, at, err := s.read(ctx)
		if err != nil {
			return err
		}
		if len(held) < s.limit {
			held[s.contender()] = true
			if done, err := s.swap(ctx, held, rev); done || err != nil {
				return err
			}
			continue
		}
		if err := s.await(ctx, at+1); err != nil {
			return err
		}
	}
}

func (s *semaphore) release(ctx context.Context) error {
	for {
		held, rev, _, err := s.read(ctx)
		if err != nil {
			return err
		}
		delete(held, s.contender())
		done, err := s.swap(ctx, held, rev)
		if err != nil {
			return err
		}
		if done {
			_, err := s.etcd.Delete(ctx, s.contender())
			return err
		}
	}
}

// read returns the holders whose sessions live, the revision of their list, and that of
// the read.
func (s *semaphore) read(ctx context.Context) (held holders, rev, at int64, err error) {
	resp, err := s.etcd.Get(ctx, s.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, 0, err
	}
	held, alive := holders{}, map[string]bool{}
	for _, kv := range resp.Kvs {
		name := string(kv.Key)
		if name != s.list() {
			alive[name] = true
			continue
		}
		rev = kv.ModRevision
		if err := json.Unmarshal(kv.Value, &held); err != nil {
			return nil, 0, 0, err
		}
	}
	for name := range held {
		if !alive[name] {
			delete(held, name)
		}
	}
	return held, rev, resp.Header.Revision, nil
}

func (s *semaphore) swap(ctx context.Context, held holders, rev int64) (done bool, err error) {
	value, err := json.Marshal(held)
	if err != nil {
		return false, err
	}
	resp, err := s.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.list()), "=", rev)).Then(clientv3.OpPut(s.list(), string(value))).Commit()
	return err == nil && resp.Succeeded, err
}

// await returns after a change that may let it in: of the list, or the end of a contender.
func (s *semaphore) await(ctx context.Context, from int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for resp := range s.etcd.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := resp.Err(); err != nil {
			return err
		}
		for _, ev := range resp.Events {
			if strings.HasSuffix(string(ev.Kv.Key), ".lock") || ev.Type == clientv3.EventTypeDelete {
				return nil
			}
		}
	}
	return context.Cause(ctx)
}

// cycleSemaphores has a session and a connection for each waiter.
func cycleSemaphores(ctx context.Context, st *stage, n int) (contender, error) {
	return sessionsOn(ctx, st, n, n, func(etcd *clientv3.Client, session *concurrency.Session, own string) func(context.Context) error {
		s := &semaphore{etcd: etcd, session: session, prefix: own, limit: keySlots}
		return func(ctx context.Context) error {
			if err := s.acquire(ctx); err != nil {
				return err
			}
			return s.release(ctx)
		}
	})
}
