package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/examples/internal/demoproc"
	"github.com/etcdclaims/claims/internal/demoetcd"
)

const (
	poisonID = "poison.png"
	attempts = 2 // of the poison: so many workers it kills
)

// parent enqueues the pictures, kills and freezes workers, and checks the results.
type parent struct {
	job
	etcd     *clientv3.Client
	queue    *queue.Queue
	pictures []queue.Item
	workers  demoproc.Group[event]

	holding, refused int
	poisoned         []string // workers that opened the poison
}

func demonstrate(ctx context.Context, j job, endpoints string) (err error) {
	p := &parent{job: j}
	if p.Dir == "" {
		if p.Dir, err = demoproc.GoRoot(ctx); err != nil {
			return err
		}
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
			return p.verify(ctx)
		})
	})
}

// listPictures returns an item for each picture. Its id is the path in the directory.
func listPictures(dir string) (items []queue.Item, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && slices.Contains([]string{".png", ".jpg", ".jpeg"}, strings.ToLower(filepath.Ext(name))) {
			items = append(items, queue.NewItem([]byte(filepath.Join(dir, name)), queue.ID(name)))
		}
		return err
	})
	return items, err
}

// play runs the workers. Each step waits for a condition, never for time to pass.
func (p *parent) play(ctx context.Context) error {
	p.workers.Handle = p.handle
	defer p.workers.Kill()
	for i := range 2 { // the ids keep the second producer from enqueuing anything twice
		added, err := p.queue.EnqueueAll(ctx, p.pictures)
		if err != nil {
			return err
		}
		log.Printf("producer %d enqueued %d of %d pictures", i+1, added, len(p.pictures))
	}
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
		return err == nil && s.Ready+s.Later+s.Taken == 0
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

func (p *parent) handle(e event) {
	switch e.Kind {
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

// verify returns an error that names everything that is not as it must be.
func (p *parent) verify(ctx context.Context) error {
	resp, err := p.etcd.Get(ctx, p.published(""), clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read the published thumbnails: %w", err)
	}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	thumbnails, retried := make(map[string]thumbnail), 0
	for _, kv := range resp.Kvs {
		var t thumbnail
		if err := json.Unmarshal(kv.Value, &t); err != nil || kv.Version != 1 { // etcd counts how often a key was written
			fault("%s was written %d times: %s", kv.Key, kv.Version, kv.Value)
		}
		if t.Attempt > 1 {
			retried++
		}
		thumbnails[strings.TrimPrefix(string(kv.Key), p.published(""))] = t
	}
	dead := make(map[string]queue.Info)
	for info, err := range p.queue.DeadLetters(ctx) {
		if err != nil {
			return err
		}
		dead[info.ID] = info
		for _, a := range info.History {
			log.Printf("dead letter %s: attempt %d by %s: %s %s", info.ID, a.Number, a.Owner, a.Ending, a.Error)
		}
	}
	for _, item := range p.pictures {
		if (thumbnails[item.ID()].File != "") == (len(dead[item.ID()].History) > 0) {
			fault("%s must have a thumbnail or a dead letter with errors, not both", item.ID())
		}
	}
	deaths := dead[poisonID].History
	if len(deaths) != attempts || !slices.EqualFunc(deaths, p.poisoned, func(a queue.Attempt, name string) bool { return a.Owner == name }) {
		fault("the dead letter of the poison names %+v, it killed %q", deaths, p.poisoned)
	}
	if retried == 0 || p.refused == 0 {
		fault("%d items had a second attempt, %d late workers were refused: want at least 1 each", retried, p.refused)
	}
	log.Printf("%d pictures, %d thumbnails, %d dead letters, %d items in a second attempt, %d late workers refused",
		len(p.pictures), len(thumbnails), len(dead), retried, p.refused)
	log.Printf("the thumbnails are in %s", p.Out)
	return errors.Join(faults...)
}
