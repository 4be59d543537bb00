package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/sched"
)

const (
	ttl    = etcdclaims.MinTTL
	frozen = ttl + time.Second // longer than the claims of a frozen process last
	pause  = 2 * time.Second   // between two faults
)

// parent kills and freezes workers, and sets their clocks. It runs no job.
type parent struct {
	setup
	etcd      *clientv3.Client
	scheduler *sched.Scheduler // to pause and inspect jobs: it never runs
	workers   demoproc.Group[event]

	owner  string // the worker that admits ticks
	runner string // the worker that began the job "long" last
}

func demonstrate(ctx context.Context, s setup, endpoints string) error {
	if s.For < 15*time.Second {
		return fmt.Errorf("-for %v: want at least 15s", s.For)
	}
	p := &parent{setup: s}
	return demoetcd.Use(ctx, "cron", endpoints, func(etcd *clientv3.Client, at []string, prefix string) error {
		p.etcd, p.Name, p.Endpoints, p.Prefix = etcd, "parent", at, prefix
		return p.withScheduler(ctx, etcd, sched.Config{Group: group, Logger: demoetcd.Logger()}, func(scheduler *sched.Scheduler) error {
			p.scheduler = scheduler
			return p.play(ctx)
		})
	})
}

// play starts the workers, makes the faults, and ends with the ledger.
func (p *parent) play(ctx context.Context) error {
	p.workers.Handle = p.handle
	defer p.workers.Kill()
	begin := time.Now()
	for range 4 {
		if err := p.start(); err != nil {
			return err
		}
	}
	log.Printf("%d processes run %d jobs", len(p.workers.Workers), len(works()))
	const least = 3 // a wrong clock, a freeze and a death, however slow the machine is
	for i := 0; i < least || time.Since(begin) < p.For-pause-frozen; i++ {
		if err := p.wait(ctx, pause); err != nil {
			return err
		}
		var target *demoproc.Process
		err := p.workers.Until(ctx, "a process to disturb", func() bool { target = p.target(i); return target != nil })
		if err == nil {
			err = p.disturb(ctx, i, target)
		}
		if err != nil {
			return err
		}
	}
	if err := p.wait(ctx, p.For-time.Since(begin)); err != nil {
		return err
	}
	return p.settle(ctx)
}

func (p *parent) start() error {
	s := p.setup
	s.Name = fmt.Sprintf("process-%d", len(p.workers.Workers)+1)
	_, err := p.workers.Start(s.Name, s)
	return err
}

func (p *parent) handle(e event) {
	switch {
	case e.Owner:
		p.owner = e.Worker
		log.Printf("%s is the owner now, and admits all ticks", e.Worker)
	case e.Began == "long":
		p.runner = e.Worker
	}
}

func (p *parent) wait(ctx context.Context, d time.Duration) error {
	over := time.Now().Add(d)
	return p.workers.Until(ctx, "the end of the run", func() bool { return !time.Now().Before(over) })
}

// target returns the worker that fault number i is for, or nil if there is none now.
func (p *parent) target(i int) *demoproc.Process {
	name := p.owner
	if i%6 == 2 {
		name = p.runner
	}
	for _, w := range p.workers.Workers {
		if ended, _ := w.Ended(); w.Name == name && !ended {
			return w
		}
	}
	return nil
}

// disturb makes fault number i.
func (p *parent) disturb(ctx context.Context, i int, w *demoproc.Process) error {
	skew := func(by time.Duration) error {
		log.Printf("the clock of %s, the owner, is wrong by %v now", w.Name, by)
		return w.Order(by)
	}
	switch i % 6 {
	case 0:
		return skew(2 * time.Second)
	case 1:
		log.Printf("%s, the owner, is frozen", w.Name)
		if err := w.Pause(); err != nil {
			return fmt.Errorf("freeze %s: %w", w.Name, err)
		}
		err := p.wait(ctx, frozen)
		log.Printf("%s continues", w.Name)
		return errors.Join(err, w.Resume())
	case 3:
		return skew(-1500 * time.Millisecond)
	case 5:
		return skew(0)
	}
	w.Kill()
	log.Printf("%s is killed: the %s", w.Name, map[int]string{2: "one that runs the job long", 4: "owner"}[i%6])
	return p.start()
}
