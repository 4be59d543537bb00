package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// results is what etcd knows of a run, by the ids of items.
type results struct {
	thumbnails map[string]thumbnail
	dead       map[string]queue.Info
	faults     []error
}

func (r *results) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf(format, args...))
}

// finish checks the results, and makes the contact sheet of them. It returns an error that
// names everything that is not as it must be.
func (p *parent) finish(ctx context.Context) error {
	r, err := p.read(ctx)
	if err != nil {
		return err
	}
	p.verify(r)
	sheet := filepath.Join(p.Out, "index.html")
	if err := writeSheet(sheet, p.Dir, r); err != nil {
		r.fault("contact sheet: %w", err)
	}
	if err := p.clean(r); err != nil {
		r.fault("remove thumbnails that were not published: %w", err)
	}
	log.Printf("the contact sheet is %s", sheet)
	return errors.Join(r.faults...)
}

// read reads what was published, and the dead letters.
func (p *parent) read(ctx context.Context) (*results, error) {
	r := &results{thumbnails: make(map[string]thumbnail), dead: make(map[string]queue.Info)}
	resp, err := p.etcd.Get(ctx, p.published(""), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the published thumbnails: %w", err)
	}
	for _, kv := range resp.Kvs {
		var t thumbnail
		if err := json.Unmarshal(kv.Value, &t); err != nil || kv.Version != 1 { // etcd counts how often a key was written
			r.fault("%s was written %d times: %s", kv.Key, kv.Version, kv.Value)
		}
		r.thumbnails[strings.TrimPrefix(string(kv.Key), p.published(""))] = t
	}
	for info, err := range p.queue.DeadLetters(ctx) {
		if err != nil {
			return nil, err
		}
		r.dead[info.ID] = info
		for _, a := range info.History {
			log.Printf("dead letter %s: attempt %d by %s: %s %s", info.ID, a.Number, a.Owner, a.Ending, a.Error)
		}
	}
	return r, nil
}

func (p *parent) verify(r *results) {
	if p.enqueued != len(p.pictures) {
		r.fault("the producers enqueued %d items of %d pictures", p.enqueued, len(p.pictures))
	}
	retried := 0
	for _, item := range p.pictures {
		t, dead := r.thumbnails[item.ID()], r.dead[item.ID()].History
		if (t.File != "") == (len(dead) > 0) {
			r.fault("%s must have a thumbnail or a dead letter with errors, not both", item.ID())
		}
		if t.Attempt > 1 {
			retried++
		}
	}
	deaths := r.dead[poisonID].History
	if len(deaths) != attempts || !slices.EqualFunc(deaths, p.poisoned, func(a queue.Attempt, name string) bool { return a.Owner == name }) {
		r.fault("the dead letter of the poison names %+v, it killed %q", deaths, p.poisoned)
	}
	if retried == 0 || p.refused == 0 {
		r.fault("%d items had a second attempt, %d late workers were refused: want at least 1 each", retried, p.refused)
	}
	log.Printf("%d pictures, %d thumbnails, %d dead letters, %d items in a second attempt, %d late workers refused",
		len(p.pictures), len(r.thumbnails), len(r.dead), retried, p.refused)
}

// clean removes the thumbnails that killed workers made and could not publish.
func (p *parent) clean(r *results) error {
	files, err := filepath.Glob(filepath.Join(p.Out, "*.[0-9]*.png"))
	for _, t := range r.thumbnails {
		files = slices.DeleteFunc(files, func(file string) bool { return filepath.Base(file) == t.File })
	}
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}
