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
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/examples/internal/demoetcd"
	"github.com/etcdclaims/claims/examples/internal/demoproc"
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
	printed  time.Time // when idle did

	holding, refused int
	poisoned         []string // workers that opened the poison
}

func demonstrate(ctx context.Context, j job, dir, endpoints string) (err error) {
	p := &parent{job: j}
	if p.pictures, err = listPictures(dir); err != nil {
		return err
	}
	if len(p.pictures) < 20 {
		return fmt.Errorf("%s has %d pictures: want 20 at least", dir, len(p.pictures))
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
		if i != 2 {
			continue
		}
		if err := p.workers.Until(ctx, "workers that hold an item", func() bool { return p.holding == 3 }); err != nil {
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
	err := os.WriteFile(path, poison(), 0o644)
	if err == nil {
		_, err = p.queue.Enqueue(ctx, queue.NewItem([]byte(path), queue.ID(poisonID), queue.MaxAttempts(attempts)))
	}
	if err != nil {
		return err
	}
	if err := p.workers.Until(ctx, "the end of all items", func() bool { return p.idle(ctx) }); err != nil {
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

// idle reports whether the queue has no items but dead letters, and prints now and
// then how many it has.
func (p *parent) idle(ctx context.Context) bool {
	s, err := p.queue.Stats(ctx)
	if err == nil && time.Since(p.printed) > time.Second {
		log.Printf("%d items wait, %d are taken, %d are dead letters", s.Ready+s.Later, s.Taken, s.Dead)
		p.printed = time.Now()
	}
	return err == nil && s.Ready+s.Later+s.Taken == 0
}

// verify writes the contact sheet, and returns an error that names everything that is
// not as it must be.
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
	}
	for _, item := range p.pictures {
		if thumbnails[item.ID()].File == "" && len(dead[item.ID()].History) == 0 {
			fault("%s has neither a thumbnail nor a dead letter with errors", item.ID())
		}
	}
	if len(thumbnails)+len(dead) != len(p.pictures)+1 { // the poison
		fault("%d thumbnails and %d dead letters do not make %d items", len(thumbnails), len(dead), len(p.pictures)+1)
	}
	var owners []string
	for _, a := range dead[poisonID].History {
		owners = append(owners, a.Owner)
	}
	if len(owners) != attempts || !slices.Equal(owners, p.poisoned) {
		fault("the dead letter of the poison names %q, it killed %q", owners, p.poisoned)
	}
	if retried == 0 || p.refused == 0 {
		fault("%d items had a second attempt, %d late workers were refused: want 1 each at least", retried, p.refused)
	}
	log.Printf("%d pictures, %d thumbnails, %d dead letters, %d items in a second attempt, %d late workers refused",
		len(p.pictures), len(thumbnails), len(dead), retried, p.refused)
	log.Printf("contact sheet: %s", filepath.Join(p.Out, "index.html"))
	return errors.Join(append(faults, writeSheet(p.Out, thumbnails, dead))...)
}
