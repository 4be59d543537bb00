package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
)

const (
	poisonID = "poison.png"
	attempts = 2 // of the poison: so many workers it kills
)

// parent starts, kills and freezes processes, and checks the results.
type parent struct {
	job
	etcd      *clientv3.Client
	queue     *queue.Queue
	pictures  []queue.Item
	producers demoproc.Group[event]
	workers   demoproc.Group[event]
	bar       *bar

	enqueued, holding, refused int
	poisoned                   []string // workers that opened the poison
}

func demonstrate(ctx context.Context, j job, endpoints string) (err error) {
	p := &parent{job: j, bar: newBar(os.Stdout)}
	log.SetOutput(p.bar)
	if p.Dir == "" {
		if p.Dir, err = demoproc.GoRoot(ctx); err != nil {
			return err
		}
	}
	if p.Dir, err = filepath.Abs(p.Dir); err != nil {
		return err
	}
	if p.pictures, err = listPictures(p.Dir); err != nil {
		return err
	}
	if len(p.pictures) < 20 {
		return fmt.Errorf("%s has %d pictures: want at least 20", p.Dir, len(p.pictures))
	}
	if p.Out, err = os.MkdirTemp(p.Out, "thumbnails-*"); err != nil {
		return err
	}
	return demoetcd.Use(ctx, "thumbnails", endpoints, func(etcd *clientv3.Client, at []string, prefix string) error {
		p.etcd, p.Name, p.Endpoints, p.Prefix = etcd, "parent", at, prefix
		return p.withQueue(ctx, etcd, func(q *queue.Queue) error {
			p.queue = q
			if err := p.play(ctx); err != nil {
				return err
			}
			return p.finish(ctx)
		})
	})
}

// play runs the processes. Each step waits for a condition, never for time to pass.
func (p *parent) play(ctx context.Context) error {
	p.producers.Handle, p.workers.Handle = p.handle, p.handle
	defer p.producers.Kill()
	defer p.workers.Kill()
	for i := range 2 {
		j := p.job
		j.Name, j.Produce = fmt.Sprintf("producer-%d", i+1), true
		if _, err := p.producers.Start(j.Name, j); err != nil {
			return err
		}
	}
	if err := p.producers.Until(ctx, "the producers to finish", p.producers.Finished); err != nil {
		return err
	}
	if err := p.startWorkers(ctx); err != nil {
		return err
	}
	for _, victim := range p.workers.Workers[:2] {
		victim.Kill()
		log.Printf("%s is killed", victim.Name)
	}
	sleeper := p.workers.Workers[2]
	if err := sleeper.Pause(); err != nil {
		return fmt.Errorf("freeze %s: %w", sleeper.Name, err)
	}
	log.Printf("%s is frozen", sleeper.Name)

	path := filepath.Join(p.Out, poisonID)
	if err := os.WriteFile(path, poison(), 0o644); err != nil {
		return err
	}
	if _, err := p.queue.Enqueue(ctx, queue.NewItem([]byte(path), queue.ID(poisonID), queue.MaxAttempts(attempts))); err != nil {
		return err
	}
	idle := func() bool {
		s, err := p.queue.Stats(ctx)
		left := s.Ready + s.Later + s.Taken
		if err == nil {
			p.bar.set(len(p.pictures)+1-left, len(p.pictures)+1)
		}
		return err == nil && left == 0
	}
	if err := p.workers.Until(ctx, "the end of all items", idle); err != nil {
		return err
	}
	if err := sleeper.Resume(); err != nil {
		return fmt.Errorf("resume %s: %w", sleeper.Name, err)
	}
	log.Printf("%s is resumed", sleeper.Name)
	p.workers.CloseOrders()
	return p.workers.Until(ctx, "the workers to finish", p.workers.Finished)
}

// startWorkers starts eight workers. Each of the first three holds an item when it returns.
func (p *parent) startWorkers(ctx context.Context) error {
	for i := range 8 {
		j := p.job
		j.Name, j.Hold = fmt.Sprintf("worker-%d", i+1), i < 3
		if _, err := p.workers.Start(j.Name, j); err != nil {
			return err
		}
		if err := p.workers.Until(ctx, "items that are held", func() bool { return p.holding == min(i+1, 3) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *parent) handle(e event) {
	switch e.Kind {
	case hasEnqueued:
		p.enqueued += e.Added
	case isHolding:
		p.holding++
	case wasRefused:
		p.refused++
	case isDying:
		p.poisoned = append(p.poisoned, e.Worker)
		p.workers.Expect(e.Worker)
	}
	log.Printf("%s %s", e.Worker, e.Text)
}
