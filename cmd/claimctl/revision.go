package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// sighting is the revision of an etcd, as an earlier run saw it.
type sighting struct {
	Revision int64     `json:"revision"`
	Epoch    int64     `json:"epoch"`
	At       time.Time `json:"at"`
}

// defaultMemory is where doctor remembers revisions, empty if this user has no
// place for such.
func defaultMemory() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "claimctl", "revisions.json")
}

// remembered reads what earlier runs saw, by endpoints, prefix and cluster. What cannot be
// read counts as nothing: it is a hint.
func (d *doctor) remembered() map[string]sighting {
	seen := map[string]sighting{}
	if b, err := os.ReadFile(d.memory); err == nil && json.Unmarshal(b, &seen) != nil {
		return map[string]sighting{}
	}
	return seen
}

// remember replaces the file, so that another run never reads half of it.
func (d *doctor) remember(seen map[string]sighting) error {
	b, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	dir := filepath.Dir(d.memory)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "revisions-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), d.memory)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error is what matters
	}
	return err
}

// revision finds out whether etcd was restored from a snapshot that is older than
// what was seen of it. In one epoch revisions only rise.
func (d *doctor) revision(ctx context.Context) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	prefix := fallback(d.prefix, etcdclaims.DefaultPrefix)
	epoch, at, err := readEpoch(ctx, d.etcd, prefix)
	if err != nil {
		d.add(levelError, "epoch", "correct the key, or grant its permission", "%v", err)
		return
	}
	d.ok("epoch", "%d", epoch)
	now := sighting{Revision: at.Revision, Epoch: epoch, At: time.Now().UTC()}
	behind := false
	if f := (sighting{Revision: keyspace.Revision(d.fence), Epoch: keyspace.Epoch(d.fence)}); now.before(f) {
		behind = true
		d.rewound(f, "fence %d has revision %d of epoch %d, and etcd is at %d of epoch %d", d.fence, f.Revision, f.Epoch, now.Revision, now.Epoch)
	}
	if d.memory == "" {
		d.forwards(now, behind)
		return
	}
	d.compare(now, fmt.Sprintf("%v %s ", d.etcd.Endpoints(), prefix), fmt.Sprintf("%x", at.ClusterId), behind)
}

// compare compares with what an earlier run saw at these endpoints. A restore may
// make another cluster of it, but so does a forwarded port, so that another cluster
// is a warning, once.
func (d *doctor) compare(now sighting, endpoints, cluster string, behind bool) {
	seen := d.remembered()
	last, known := seen[endpoints+cluster]
	for name, other := range seen {
		if strings.HasPrefix(name, endpoints) && !known && now.before(other) {
			behind = true
			d.add(levelWarning, "revision", fmt.Sprintf("if that etcd was restored into this one: %s epoch raise --above %d --yes", d.claimctl(), other.Epoch),
				"another etcd was at these endpoints at %s, with revision %d (epoch %d); this one has %d (epoch %d)",
				stamp(other.At), other.Revision, other.Epoch, now.Revision, now.Epoch)
		}
	}
	if now.before(last) {
		d.rewound(last, "went back from %d (epoch %d), seen at %s, to %d (epoch %d)", last.Revision, last.Epoch, stamp(last.At), now.Revision, now.Epoch)
		return // what was greater is remembered until the epoch is
	}
	seen[endpoints+cluster] = now
	if err := d.remember(seen); err != nil {
		d.add(levelWarning, "revision", "let --memory name a file that can be written, or be empty", "cannot be remembered: %v", err)
		return
	}
	d.forwards(now, behind)
}

// before reports whether all fences from now on may be below one of the other.
func (s sighting) before(other sighting) bool {
	return s.Epoch < other.Epoch || s.Epoch == other.Epoch && s.Revision < other.Revision
}

func (d *doctor) rewound(last sighting, format string, args ...any) {
	remedy := fmt.Sprintf("etcd was restored without --bump-revision, so that fences repeat: stop the programs that write under fences, then: %s epoch raise --above %d --yes", d.claimctl(), last.Epoch)
	if !last.At.IsZero() {
		remedy += "; if this etcd was emptied on purpose, delete " + d.memory
	}
	d.add(levelError, "revision", remedy, format, args...)
}

func (d *doctor) forwards(now sighting, behind bool) {
	if !behind {
		d.ok("revision", "%d, not behind what was seen before", now.Revision)
	}
}
