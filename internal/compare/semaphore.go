package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// semaphore is the algorithm of Consul's semaphore (hashicorp/consul, api/semaphore.go) on
// etcd. Each contender has a key on its session. One more key lists the holders, and is
// changed by compare and swap. Whoever does not get in waits for a change of any of them.
// Entries of contenders whose session has ended are dropped by the next who writes.
type semaphore struct {
	etcd              *clientv3.Client
	prefix, list, own string // own is the contender's key
}

func consul(etcd *clientv3.Client, s *concurrency.Session, at string) cycle {
	sem := &semaphore{etcd: etcd, prefix: at + "/", list: at + "/.lock", own: fmt.Sprintf("%s/%x", at, s.Lease())}
	return func(ctx context.Context) error {
		if _, err := etcd.Put(ctx, sem.own, "", clientv3.WithLease(s.Lease())); err != nil {
			return err
		}
		if err := sem.change(ctx, func(held map[string]bool) bool {
			enters := len(held) < keySlots
			if enters {
				held[sem.own] = true
			}
			return enters
		}); err != nil {
			return err
		}
		if err := sem.change(ctx, func(held map[string]bool) bool { delete(held, sem.own); return true }); err != nil {
			return err
		}
		_, err := etcd.Delete(ctx, sem.own)
		return err
	}
}

// change swaps the list of holders for a changed one, as soon as that can be changed.
func (s *semaphore) change(ctx context.Context, change func(held map[string]bool) bool) error {
	for {
		resp, err := s.etcd.Get(ctx, s.prefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		held, alive, rev := map[string]bool{}, map[string]bool{}, int64(0)
		for _, kv := range resp.Kvs {
			if alive[string(kv.Key)] = true; string(kv.Key) == s.list {
				rev = kv.ModRevision
				if err := json.Unmarshal(kv.Value, &held); err != nil {
					return err
				}
			}
		}
		maps.DeleteFunc(held, func(name string, _ bool) bool { return !alive[name] })
		if !change(held) {
			if err := s.await(ctx, resp.Header.Revision+1); err != nil {
				return err
			}
			continue
		}
		value, err := json.Marshal(held)
		if err != nil {
			return err
		}
		swap, err := s.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(s.list), "=", rev)).
			Then(clientv3.OpPut(s.list, string(value))).
			Commit()
		if err != nil || swap.Succeeded {
			return err
		}
	}
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
			if string(ev.Kv.Key) == s.list || ev.Type == clientv3.EventTypeDelete {
				return nil
			}
		}
	}
	return context.Cause(ctx)
}
