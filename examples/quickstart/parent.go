package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/examples/demoproc"
)

// parent starts the workers, kills one and freezes one, and checks the results.
// It gives no file to any worker.
type parent struct {
	job
	files   []string
	etcd    *clientv3.Client
	workers demoproc.Group[event]
	printed time.Time // when count did

	ready   map[string]event // of each worker, with the file that it holds
	heirs   map[string]event // who took a file over, by file
	refused int              // late writes
}

func demonstrate(ctx context.Context, j job, endpoints string) (err error) {
	p := &parent{job: j, printed: time.Now(), ready: make(map[string]event), heirs: make(map[string]event)}
	p.Of = 3
	if p.files, err = listFiles(p.Root); err != nil {
		return err
	}
	if len(p.files) < p.Of {
		return fmt.Errorf("%s has %d .go files: too few for %d workers", p.Root, len(p.files), p.Of)
	}
	return demoetcd.Use(ctx, "quickstart", endpoints, func(etcd *clientv3.Client, at []string, prefix string) error {
		p.etcd, p.Endpoints, p.Prefix = etcd, at, prefix
		if err := p.play(ctx); err != nil {
			return err
		}
		return p.verify(ctx)
	})
}

// play runs the workers. Each step waits for a condition, never for time to pass.
func (p *parent) play(ctx context.Context) error {
	p.workers.Handle = p.handle
	defer p.workers.Kill()
	for rank := range p.Of {
		j := p.job
		j.Name, j.Rank, j.Hold = fmt.Sprintf("worker-%d", rank+1), rank, rank < 2
		if _, err := p.workers.Start(j.Name, j); err != nil {
			return err
		}
	}
	if err := p.workers.Until(ctx, "the workers to be ready", func() bool { return len(p.ready) == p.Of }); err != nil {
		return err
	}
	log.Printf("%d workers count %d files below %s", p.Of, len(p.files), p.Root)
	if err := p.workers.Order("start"); err != nil {
		return err
	}
	if err := p.workers.Until(ctx, "10 % of the results", func() bool { return p.count(ctx) >= len(p.files)/10 }); err != nil {
		return err
	}
	victim, sleeper := p.workers.Workers[0], p.workers.Workers[1]
	victim.Kill()
	log.Printf("%s is killed, holding %s (fence %d)", victim.Name, p.ready[victim.Name].File, p.ready[victim.Name].Fence)
	if err := sleeper.Pause(); err != nil {
		return fmt.Errorf("freeze %s: %w", sleeper.Name, err)
	}
	held := p.ready[sleeper.Name]
	log.Printf("%s is frozen, about to write %s (fence %d)", sleeper.Name, held.File, held.Fence)
	succeeded := func() bool { p.count(ctx); return p.heirs[held.File].Fence > held.Fence }
	if err := p.workers.Until(ctx, "a successor of "+sleeper.Name, succeeded); err != nil {
		return err
	}
	if err := sleeper.Resume(); err != nil {
		return fmt.Errorf("resume %s: %w", sleeper.Name, err)
	}
	log.Printf("%s is resumed", sleeper.Name)
	return p.workers.Until(ctx, "the last file", func() bool { return p.count(ctx) == len(p.files) && p.workers.Finished() })
}

func (p *parent) handle(e event) {
	switch e.Kind {
	case isReady:
		p.ready[e.Worker] = e
		return
	case tookOver:
		p.heirs[e.File] = e
	case wasRefused:
		p.refused++
	}
	log.Printf("%s %s", e.Worker, e.Text)
}

// count returns how many files have a result, and prints it now and then.
func (p *parent) count(ctx context.Context) int {
	resp, err := p.etcd.Get(ctx, p.resultKey(""), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0 // look again
	}
	if time.Since(p.printed) > 2*time.Second {
		log.Printf("%d of %d files are counted", resp.Count, len(p.files))
		p.printed = time.Now()
	}
	return int(resp.Count)
}

// verify returns an error that names everything that is not as it must be.
func (p *parent) verify(ctx context.Context) error {
	resp, err := p.etcd.Get(ctx, p.resultKey(""), clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the results: %w", err)
	}
	alone, err := countTree(p.Root, p.files)
	if err != nil {
		return err
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	var together counts
	results := make(map[string]result)
	for _, kv := range resp.Kvs {
		var r result
		if err := json.Unmarshal(kv.Value, &r); err != nil || kv.Version != 1 { // etcd counts how often a key was written
			fault("%s was written %d times: %s %v", kv.Key, kv.Version, kv.Value, err)
		}
		results[string(kv.Key)] = r
		together = together.plus(r.Counts)
	}
	for _, file := range p.files {
		if _, ok := results[p.resultKey(file)]; !ok {
			fault("%s has no result", file)
		}
	}
	if len(results) != len(p.files) || together != alone {
		fault("the workers counted %v in %d files, one process %v in %d", together, len(results), alone, len(p.files))
	}
	for _, held := range p.ready {
		if r := results[p.resultKey(held.File)]; held.File != "" && r.Fence <= held.Fence {
			fault("%s: fence %d of the result by %s is not above %d of %s", held.File, r.Fence, r.Worker, held.Fence, held.Worker)
		}
	}
	if len(p.heirs) == 0 || p.refused == 0 {
		fault("%d files were taken over, %d late writes were refused: want 1 each at least", len(p.heirs), p.refused)
	}
	log.Printf("three processes: %v", together)
	log.Printf("one process:     %v", alone)
	log.Printf("%d files, %d results; %d taken over; %d late write refused", len(p.files), len(results), len(p.heirs), p.refused)
	return errors.Join(faults...)
}
