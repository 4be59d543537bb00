package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
)

// watchResults follows the results as they are stored, and counts them by
// worker.
func (p *parent) watchResults(ctx context.Context, running *sync.WaitGroup) error {
	resp, err := p.etcd.Get(ctx, p.results(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("reading from etcd at %v: %w", p.Endpoints, err)
	}
	// From the next revision on, so that nothing is missed or seen twice.
	results := p.etcd.Watch(clientv3.WithRequireLeader(ctx), p.results(),
		clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	running.Go(func() {
		for resp := range results {
			p.send(ctx, func() { p.countResults(resp) })
		}
	})
	return nil
}

func (p *parent) countResults(resp clientv3.WatchResponse) {
	if err := resp.Err(); err != nil {
		p.err = fmt.Errorf("watching the results: %w", err)
	}
	for _, e := range resp.Events {
		if !e.IsCreate() {
			continue // verify finds these
		}
		p.done++
		var r result
		if err := json.Unmarshal(e.Kv.Value, &r); err != nil {
			p.err = fmt.Errorf("result %s: %w", e.Kv.Key, err)
		}
		for _, w := range p.workers {
			if w.name == r.Worker {
				w.done++
			}
		}
	}
}

// findSuccessor waits until the work has an owner with a greater fence than the
// one who holds it.
func (p *parent) findSuccessor(ctx context.Context, held event) {
	for _, err := range p.client.Watch(ctx, held.File) {
		var r etcdclaims.Record
		if err == nil {
			// An event only says when to look. What is true is in the record.
			r, _, err = p.client.Record(ctx, held.File)
		}
		if err != nil {
			p.send(ctx, func() { p.err = fmt.Errorf("watching %s: %w", held.File, err) })
			return
		}
		if r.Fence > held.Fence {
			p.send(ctx, func() { p.successor = &r })
			return
		}
	}
}

// verify returns an error that tells all that is not as it must be.
func (p *parent) verify(ctx context.Context) error {
	resp, err := p.etcd.Get(ctx, p.results(), clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("reading the results: %w", err)
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	var together counts
	results := make(map[string]result, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		file := string(kv.Key[len(p.results()):])
		var r result
		if err := json.Unmarshal(kv.Value, &r); err != nil {
			fault("result of %s: %w", file, err)
		}
		// A key's version is how often it was written.
		if kv.Version != 1 {
			fault("the result of %s was written %d times", file, kv.Version)
		}
		results[file] = r
		together = together.plus(r.counts)
	}
	for _, file := range p.files {
		if _, ok := results[file]; !ok {
			fault("%s has no result", file)
		}
	}
	if extra := len(results) - len(p.files); extra > 0 {
		fault("%d results are of no file", extra)
	}
	alone, err := countAll(p.Root, p.files)
	if err != nil {
		return err
	}
	if together != alone {
		fault("the workers counted %v, but one process %v", together, alone)
	}
	for _, w := range p.workers[:2] {
		if r := results[w.held.File]; r.Fence <= w.held.Fence {
			fault("the result of %s has fence %d of %s, not a greater one than %d of %s",
				w.held.File, r.Fence, r.Worker, w.held.Fence, w.name)
		}
	}
	if p.tookOver == 0 {
		fault("no work of a dead owner was taken over")
	}
	if p.refused == 0 {
		fault("no late write was refused")
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	p.board.line("three processes: %v", together)
	p.board.line("one process:     %v", alone)
	p.board.line("%d files, one result each; %d taken over; %d late write refused by etcd, %d not even sent",
		len(p.files), p.tookOver, p.refused, p.lost)
	return nil
}
