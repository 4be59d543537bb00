package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/examples/internal/demoetcd"
	"github.com/etcdclaims/claims/sched"
)

// frozen is longer than the claims of who stands still last.
const frozen = ttl + 3*time.Second

// The parent only watches, and plays fate. It takes part in no schedule.
type parent struct {
	setup
	etcd   *clientv3.Client
	groups map[string]*sched.Scheduler // to ask, and to pause: they never run
	works  []work
	board  *board

	children []*child

	mu      sync.Mutex
	owners  map[string]*child // of groups
	runners map[string]*child // who began a job last
	ran     map[string]int    // runs of jobs that came to their end
}

func demonstrate(ctx context.Context, o options) (err error) {
	p := &parent{
		setup:  setup{Prefix: "/cron/", Start: time.Now(), Work: o.work},
		groups: make(map[string]*sched.Scheduler), works: works(o.work), board: newBoard(os.Stdout),
		owners: make(map[string]*child), runners: make(map[string]*child), ran: make(map[string]int),
	}
	if o.endpoints != "" {
		p.Prefix += strings.ToLower(rand.Text()) + "/" // keeps out of the way of what is there
	}
	var stop func()
	if p.Endpoints, stop, err = demoetcd.Open(o.endpoints); err != nil {
		return err
	}
	defer stop()
	p.etcd, err = clientv3.New(clientv3.Config{Endpoints: p.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.etcd.Close()) }()
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, derr := p.etcd.Delete(last, p.Prefix, clientv3.WithPrefix()) // leases end by themselves
		err = errors.Join(err, derr)
	}()
	claims, err := etcdclaims.New(p.etcd, etcdclaims.Config{Prefix: p.claims(), Owner: "parent", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claims.Close(context.WithoutCancel(ctx))) }()
	for group, c := range clocks(p.Start) {
		now := func() time.Time { return c.now(0) }
		if p.groups[group], err = sched.New(claims, sched.Config{Group: group, Now: now}); err != nil {
			return err
		}
	}
	defer func() {
		for _, c := range p.children {
			if c != nil {
				c.Kill()
			}
		}
	}()
	if err := p.play(ctx, o.length); err != nil {
		return err
	}
	return p.settle(ctx)
}

// play starts the processes and does to them what fate does.
func (p *parent) play(ctx context.Context, length time.Duration) (err error) {
	p.children = make([]*child, 4)
	for i := range p.children {
		if err := p.start(i, fmt.Sprintf("process-%d", i+1)); err != nil {
			return err
		}
	}
	p.board.line("%d processes run %d jobs", len(p.children), len(p.works))
	fate := []func() error{
		func() error { return p.kill(p.runners, "minute") },
		func() error { return p.skew(2 * time.Second) },
		func() error { return p.freeze(ctx, real) },
		func() error { return p.skew(-1500 * time.Millisecond) },
		func() error { return p.kill(p.owners, real) },
		func() error { return p.freeze(ctx, simulated) },
		func() error { return p.skew(0) },
	}
	pause := 5 * time.Second
	for i := 0; time.Since(p.Start) < length-pause-frozen && err == nil; i++ {
		if i == len(fate) {
			pause = 15 * time.Second // or what takes half a minute would hardly ever be done
		}
		if err = p.wait(ctx, pause); err == nil {
			err = fate[i%len(fate)]()
		}
	}
	return errors.Join(err, p.wait(ctx, length-time.Since(p.Start)))
}

func (p *parent) start(i int, name string) (err error) {
	s := p.setup
	s.Name = name
	p.children[i], err = startChild(s, p.note)
	return err
}

// note takes in what a process tells.
func (p *parent) note(c *child, e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Owner != "":
		p.owners[e.Owner] = c
		p.board.line("%s is the owner of group %s now, and admits its ticks", c.name, e.Owner)
	case e.Began != "":
		p.runners[e.Began] = c
	case e.Ended != "":
		p.ran[e.Ended]++
	}
}

// who returns one of the children, and its place; ok is false if it is none any
// more.
func (p *parent) who(of map[string]*child, name string) (c *child, i int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c = of[name]
	i = slices.Index(p.children, c)
	return c, i, i >= 0
}

// kill kills the owner of a group, or the runner of a job, and starts another
// process in its place.
func (p *parent) kill(of map[string]*child, name string) error {
	c, i, ok := p.who(of, name)
	if !ok {
		return nil
	}
	p.board.line("%s is killed: it had %q", c.name, name)
	c.Kill()
	return p.start(i, c.name)
}

// freeze stops the owner of a group for longer than its claims last.
func (p *parent) freeze(ctx context.Context, group string) error {
	c, _, ok := p.who(p.owners, group)
	if !ok {
		return nil
	}
	if err := c.Pause(); err != nil {
		return fmt.Errorf("freezing %s: %w", c.name, err)
	}
	p.board.line("%s is frozen, the owner of group %s", c.name, group)
	err := p.wait(ctx, frozen)
	p.board.line("%s goes on, as if nothing had been", c.name)
	return errors.Join(err, c.Resume())
}

// skew sets the owner's clock wrong.
func (p *parent) skew(by time.Duration) error {
	c, _, ok := p.who(p.owners, real)
	if !ok {
		return nil
	}
	p.board.line("the clock of %s, the owner of group %s, is off by %v from now on", c.name, real, by)
	return c.order(by)
}

// wait looks on for so long.
func (p *parent) wait(ctx context.Context, d time.Duration) error {
	over := time.After(d)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, c := range p.children {
				if err := c.ended(); err != nil {
					return err
				}
			}
			p.board.show(p.now())
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// now says what is the case.
func (p *parent) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := "runs:"
	for _, w := range p.works {
		s += fmt.Sprintf("  %s %d", w.job.Name, p.ran[w.job.Name])
	}
	return s
}
