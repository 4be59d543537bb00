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
)

// The parent only watches, and plays fate. It tells no worker what to count.
type parent struct {
	job
	files   []string
	etcd    *clientv3.Client
	client  *etcdclaims.Client
	board   *board
	workers []*process
	news    chan func() // from other goroutines, to be called on the parent's own

	// What was seen so far.
	done      int // results
	tookOver  int // work of owners who were gone
	refused   int // late writes that etcd refused
	lost      int // late writes that workers did not even send
	successor *etcdclaims.Record
	err       error
}

func demonstrate(ctx context.Context, o options) (err error) {
	p := &parent{
		job:   job{Of: 3, Root: o.root, Pace: o.pace, Prefix: "/quickstart/"},
		board: newBoard(os.Stdout),
		news:  make(chan func()),
	}
	if p.files, err = listFiles(o.root); err != nil {
		return err
	}
	if len(p.files) < p.Of {
		return fmt.Errorf("%s has %d .go files: too few for %d workers", o.root, len(p.files), p.Of)
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
	if o.endpoints != "" {
		defer func() { err = errors.Join(err, p.cleanUp(ctx)) }()
	}
	p.client, err = etcdclaims.New(p.etcd, etcdclaims.Config{Prefix: p.claims(), Owner: "parent"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.client.Close(context.WithoutCancel(ctx))) }()
	if err := p.tell(ctx); err != nil {
		return err
	}
	return p.verify(ctx)
}

// cleanUp removes all that the run has left in an etcd that is not its own. Leases
// end by themselves.
func (p *parent) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if _, err := p.etcd.Delete(ctx, p.Prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("removing %s: %w", p.Prefix, err)
	}
	return nil
}

// tell runs the workers, and is the story of the demonstration. Each step waits
// for what it needs, and for no time to pass.
func (p *parent) tell(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills whatever still runs

	if err := p.watchResults(ctx, &running); err != nil {
		return err
	}
	if err := p.startWorkers(ctx, &running); err != nil {
		return err
	}
	victim, sleeper := p.workers[0], p.workers[1]
	ready := func() bool { return !slices.ContainsFunc(p.workers, func(w *process) bool { return !w.ready }) }
	if err := p.until(ctx, "the workers to be ready", ready); err != nil {
		return err
	}
	p.board.line("%d workers count %d files below %s", len(p.workers), len(p.files), p.Root)
	for _, w := range p.workers {
		if err := w.orders.Encode(start{Go: true}); err != nil {
			return fmt.Errorf("starting %s: %w", w.name, err)
		}
		w.state = "running"
	}

	if err := p.until(ctx, "10 % of the results", func() bool { return p.done >= len(p.files)/10 }); err != nil {
		return err
	}
	victim.killed, victim.state = true, "killed"
	if err := victim.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing %s: %w", victim.name, err)
	}
	p.board.line("%s is killed, holding %s (fence %d)", victim.name, short(victim.held.File), victim.held.Fence)

	if err := p.until(ctx, "20 % of the results", func() bool { return p.done >= len(p.files)/5 }); err != nil {
		return err
	}
	if err := freeze(sleeper.cmd.Process); err != nil {
		return fmt.Errorf("freezing %s: %w", sleeper.name, err)
	}
	sleeper.state = "frozen"
	p.board.line("%s is frozen, about to write %s (fence %d)", sleeper.name, short(sleeper.held.File), sleeper.held.Fence)

	running.Go(func() { p.findSuccessor(ctx, sleeper.held) })
	if err := p.until(ctx, "a successor of "+sleeper.name, func() bool { return p.successor != nil }); err != nil {
		return err
	}
	p.board.line("%s is resumed: %s has %s now (fence %d)", sleeper.name, p.successor.Owner, short(p.successor.Key), p.successor.Fence)
	sleeper.state = "resumed"
	if err := thaw(sleeper.cmd.Process); err != nil {
		return fmt.Errorf("resuming %s: %w", sleeper.name, err)
	}

	finished := func() bool { return !slices.ContainsFunc(p.workers, func(w *process) bool { return !w.finished }) }
	if err := p.until(ctx, "the workers to finish", finished); err != nil {
		return err
	}
	// The news of the last results may still be on its way.
	if err := p.until(ctx, "the last results", func() bool { return p.done >= len(p.files) }); err != nil {
		return err
	}
	p.board.leave(p.rows(), p.done, len(p.files))
	return nil
}

// send has f called on the parent's goroutine.
func (p *parent) send(ctx context.Context, f func()) {
	select {
	case p.news <- f:
	case <-ctx.Done():
	}
}

// until takes in news until the condition is met.
func (p *parent) until(ctx context.Context, what string, met func() bool) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case f := <-p.news:
			f()
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
		if p.err != nil {
			return p.err
		}
		p.board.draw(p.rows(), p.done, len(p.files))
	}
	return nil
}

func (p *parent) rows() []row {
	rows := make([]row, len(p.workers))
	for i, w := range p.workers {
		rows[i] = row{name: w.name, state: w.state, done: w.done}
	}
	return rows
}

// note takes in what a worker tells.
func (p *parent) note(w *process, e event) {
	switch e.Kind {
	case isReady:
		w.ready, w.state = true, "ready"
	case isHolding:
		w.held = e
	case tookOver:
		p.tookOver++
		p.board.line("%s takes over %s, orphaned by %s: attempt %d, fence %d after %d",
			w.name, short(e.File), e.Previous.Owner, e.Attempt, e.Fence, e.Previous.Fence)
	case lostClaim:
		p.lost++
		p.board.line("%s does not write %s: its claim is lost, %s (fence %d)", w.name, short(e.File), e.Reason, e.Fence)
	case wasRefused:
		p.refused++
		p.board.line("%s writes %s late: refused by etcd (fence %d)", w.name, short(e.File), e.Fence)
	case wasWritten:
		p.err = fmt.Errorf("etcd carried out a late write of %s to %s under fence %d", w.name, e.File, e.Fence)
	}
}

func (p *parent) ended(w *process, err error) {
	w.finished = true
	switch {
	case w.killed:
	case err != nil:
		p.err = err
	default:
		w.state = "finished"
	}
}
