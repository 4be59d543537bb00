package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
)

// parent writes the log, starts, kills and freezes workers, and checks the totals.
type parent struct {
	job
	etcd    *clientv3.Client
	view    *group.View
	want    [partitions]total
	workers demoproc.Group[event]

	holding, refused int
	read             time.Time // when the totals were read last
}

func demonstrate(ctx context.Context, j job, endpoints string) (err error) {
	if j.Events < partitions || j.Batches < 1 {
		return fmt.Errorf("%d events in %d steps: want at least %d and 1", j.Events, j.Batches, partitions)
	}
	p := &parent{job: j}
	if p.Dir, err = os.MkdirTemp("", "shards-*"); err != nil {
		return err
	}
	defer os.RemoveAll(p.Dir)
	if p.want, err = writeLog(p.Dir, p.Events); err != nil {
		return err
	}
	log.Printf("the log has %d events in %d partitions", p.Events, partitions)
	return demoetcd.Use(ctx, "shards", endpoints, func(etcd *clientv3.Client, at []string, prefix string) error {
		p.etcd, p.Name, p.Endpoints, p.Prefix = etcd, "parent", at, prefix
		claims, err := p.newClaims(etcd)
		if err != nil {
			return err
		}
		defer claims.Close(context.WithoutCancel(ctx))
		p.workers.Handle = p.handle
		defer p.workers.Kill()
		if err := p.start(ctx, 1, 9); err != nil {
			return err
		}
		open := func() bool { p.view, err = group.Open(ctx, claims, "log"); return err == nil }
		if err := p.workers.Until(ctx, "the first member", open); err != nil {
			return err
		}
		defer p.view.Close()
		stop := show(ctx, p.view)
		defer stop()
		if err := p.play(ctx); err != nil {
			return err
		}
		return p.verify(ctx)
	})
}

// start starts workers. The third one stops before a write.
func (p *parent) start(ctx context.Context, from, to int) error {
	for i := from; i <= to; i++ {
		j := p.job
		j.Name, j.Hold = fmt.Sprintf("worker-%02d", i), i == 3
		if _, err := p.workers.Start(j.Name, j); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// play lets workers come and go. Each step waits for a condition, never for time to pass.
func (p *parent) play(ctx context.Context) error {
	if err := p.balanced(ctx, 9); err != nil {
		return err
	}
	if err := p.start(ctx, 10, 12); err != nil {
		return err
	}
	if err := p.balanced(ctx, 12); err != nil {
		return err
	}
	if err := p.workers.Until(ctx, "a worker that is about to write", func() bool { return p.holding > 0 }); err != nil {
		return err
	}
	sleeper := p.workers.Workers[2]
	if err := sleeper.Pause(); err != nil {
		return fmt.Errorf("freeze %s: %w", sleeper.Name, err)
	}
	log.Printf("%s is frozen", sleeper.Name)
	for _, victim := range p.workers.Workers[:2] {
		victim.Kill()
		log.Printf("%s is killed", victim.Name)
	}
	begin := time.Now()
	if err := p.balanced(ctx, 9); err != nil {
		return err
	}
	log.Printf("their partitions have other owners after %.1f s", time.Since(begin).Seconds())
	if err := sleeper.Resume(); err != nil {
		return fmt.Errorf("resume %s: %w", sleeper.Name, err)
	}
	log.Printf("%s is resumed", sleeper.Name)
	if err := p.workers.Until(ctx, "the refusal of a late write", func() bool { return p.refused > 0 }); err != nil {
		return err
	}
	if err := p.balanced(ctx, 10); err != nil { // it has joined again
		return err
	}
	if err := p.workers.Workers[3].Order(leave); err != nil {
		return err
	}
	log.Printf("%s leaves", p.workers.Workers[3].Name)
	if err := p.balanced(ctx, 9); err != nil {
		return err
	}
	if err := p.workers.Until(ctx, "the end of the log", func() bool { return p.complete(ctx) }); err != nil {
		return err
	}
	p.workers.CloseOrders()
	return p.workers.Until(ctx, "the workers to finish", p.workers.Finished)
}

// balanced waits until so many members own all partitions, as the plan wants it.
func (p *parent) balanced(ctx context.Context, members int) error {
	err := p.workers.Until(ctx, fmt.Sprintf("%d members", members), func() bool {
		return len(p.view.Assignment().Members) == members && len(p.view.Plan(nil).Moves) == 0
	})
	if err == nil {
		log.Printf("%d members own all partitions, %d to %d each", members, partitions/members, (partitions+members-1)/members)
	}
	return err
}

func (p *parent) handle(e event) {
	switch e.Kind {
	case isHolding:
		p.holding++
	case wasRefused:
		if p.refused++; p.refused > 1 {
			return // one line is enough
		}
	}
	log.Printf("%s %s", e.Worker, e.Text)
}

// totals reads what the workers have written.
func (p *parent) totals(ctx context.Context) (totals [partitions]total, err error) {
	for partition := range totals {
		resp, err := p.etcd.Get(ctx, p.totalKey(partition))
		if err != nil {
			return totals, fmt.Errorf("read the totals: %w", err)
		}
		if len(resp.Kvs) > 0 {
			if err := json.Unmarshal(resp.Kvs[0].Value, &totals[partition]); err != nil {
				return totals, fmt.Errorf("the total of partition %d: %w", partition, err)
			}
		}
	}
	return totals, nil
}

func (p *parent) complete(ctx context.Context) bool {
	if time.Since(p.read) < time.Second {
		return false
	}
	p.read = time.Now()
	totals, err := p.totals(ctx)
	for partition := range totals {
		if totals[partition].Events < p.want[partition].Events {
			return false
		}
	}
	return err == nil
}

// verify returns an error that names each partition whose total is wrong.
func (p *parent) verify(ctx context.Context) error {
	totals, err := p.totals(ctx)
	faults := []error{err}
	var all total
	for partition, t := range totals {
		if t != p.want[partition] {
			faults = append(faults, fmt.Errorf("partition %d has the total %+v, one process counts %+v", partition, t, p.want[partition]))
		}
		all.Events += t.Events
		all.Sum += t.Sum
	}
	log.Printf("%d events, sum %d: as one process counts; %d late writes refused", all.Events, all.Sum, p.refused)
	return errors.Join(faults...)
}
