package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
func (c *checkup) remembered() map[string]sighting {
	seen := map[string]sighting{}
	if b, err := os.ReadFile(c.memory); err == nil && json.Unmarshal(b, &seen) != nil {
		return map[string]sighting{}
	}
	return seen
}

// remember replaces the file, so that another run never reads half of it.
func (c *checkup) remember(seen map[string]sighting) error {
	b, err := json.Marshal(seen)
	if err != nil {
		return err
	}
	dir := filepath.Dir(c.memory)
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
		err = os.Rename(f.Name(), c.memory)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error is what matters
	}
	return err
}

// revision finds out whether etcd was restored from a snapshot that is older than
// what was seen of it. In one epoch revisions only rise.
func (c *checkup) revision(epoch int64, at *pb.ResponseHeader) {
	now := sighting{Revision: at.Revision, Epoch: epoch, At: time.Now().UTC()}
	behind := false
	if f := (sighting{Revision: keyspace.Revision(c.fence), Epoch: keyspace.Epoch(c.fence)}); now.before(f) {
		behind = true
		c.rewound(f, "fence %d has revision %d of epoch %d, and etcd is at %d of epoch %d", c.fence, f.Revision, f.Epoch, now.Revision, now.Epoch)
	}
	if c.memory == "" {
		c.forwards(now, behind)
		return
	}
	c.compare(now, fmt.Sprintf("%v %s ", c.Claims.Etcd().Endpoints(), c.Claims.Prefix()), fmt.Sprintf("%x", at.ClusterId), behind)
}

// compare compares with the greatest that earlier runs saw at these endpoints, of any
// cluster: a restore with another token makes another cluster. It is remembered until
// etcd is at or above it, so that no run forgets a restore that nobody mended.
func (c *checkup) compare(now sighting, endpoints, cluster string, behind bool) {
	seen := c.remembered()
	last, of := now, endpoints+cluster
	for name, other := range seen {
		if strings.HasPrefix(name, endpoints) && last.before(other) {
			last, of = other, name
		}
	}
	if now.before(last) {
		another := ""
		if of != endpoints+cluster {
			another = " of another cluster"
		}
		c.rewound(last, "went back from %d (epoch %d)%s, seen at %s, to %d (epoch %d)", last.Revision, last.Epoch, another, doctor.Stamp(last.At), now.Revision, now.Epoch)
		return
	}
	maps.DeleteFunc(seen, func(name string, _ sighting) bool { return strings.HasPrefix(name, endpoints) })
	seen[endpoints+cluster] = now
	if err := c.remember(seen); err != nil {
		c.Add(doctor.Warning, "revision", "let --memory name a file that can be written, or be empty", "cannot be remembered: %v", err)
		return
	}
	c.forwards(now, behind)
}

// before reports whether all fences from now on may be below one of the other.
func (s sighting) before(other sighting) bool {
	return s.Epoch < other.Epoch || s.Epoch == other.Epoch && s.Revision < other.Revision
}

func (c *checkup) rewound(last sighting, format string, args ...any) {
	remedy := fmt.Sprintf("etcd was restored without --bump-revision, so that fences repeat: stop the programs that write under fences, then: %s epoch raise --above %d --yes", c.claimctl(), last.Epoch)
	if !last.At.IsZero() {
		remedy += "; if this etcd was emptied on purpose, delete " + c.memory + "; if it never was the other etcd (a forwarded port), give it its own --memory"
	}
	c.Add(doctor.Error, "revision", remedy, format, args...)
}

func (c *checkup) forwards(now sighting, behind bool) {
	if !behind {
		c.Well("revision", "%d, not behind what was seen before", now.Revision)
	}
}
