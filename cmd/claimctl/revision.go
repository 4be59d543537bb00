package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// update changes the file under a lock: doctors that run at once lose nothing of each other.
func (c *checkup) update(change func(seen map[string]sighting)) error {
	if err := os.MkdirAll(filepath.Dir(c.memory), 0o700); err != nil {
		return err
	}
	unlock, err := lockFile(c.memory + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	seen := c.remembered()
	change(seen)
	return c.remember(seen)
}

// keep stores the sighting. It replaces the sightings of all clusters at these endpoints,
// except greater ones, which another doctor has stored meanwhile.
func (c *checkup) keep(endpoints, cluster string, now sighting) error {
	return c.update(func(seen map[string]sighting) {
		maps.DeleteFunc(seen, func(name string, s sighting) bool { return strings.HasPrefix(name, endpoints) && !now.before(s) })
		if _, above := seen[endpoints+cluster]; !above {
			seen[endpoints+cluster] = now
		}
	})
}

// greatest returns the greatest sighting at these endpoints, and its name.
func greatest(seen map[string]sighting, endpoints string) (last sighting, of string) {
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if strings.HasPrefix(name, endpoints) && (of == "" || last.before(seen[name])) {
			last, of = seen[name], name
		}
	}
	return last, of
}

func sightingOf(epoch int64, at *pb.ResponseHeader) (now sighting, cluster string) {
	return sighting{Revision: at.Revision, Epoch: epoch, At: time.Now().UTC()}, fmt.Sprintf("%x", at.ClusterId)
}

// revision finds out whether etcd was restored from a snapshot that is older than
// what was seen of it. In one epoch revisions only rise.
func (c *checkup) revision(ctx context.Context, epoch int64, at *pb.ResponseHeader) {
	now, _ := sightingOf(epoch, at)
	behind := false
	if f := (sighting{Revision: keyspace.Revision(c.fence), Epoch: keyspace.Epoch(c.fence)}); now.before(f) {
		behind = true
		c.rewound(f, "fence %d has revision %d of epoch %d, and etcd is at %d of epoch %d", c.fence, f.Revision, f.Epoch, now.Revision, now.Epoch)
	}
	if c.memory == "" {
		c.forwards(now, behind)
		return
	}
	c.compare(ctx, epoch, at, behind)
}

// compare compares with the greatest that earlier runs saw at these endpoints, of any
// cluster: a restore with another token makes another cluster. It is remembered until
// etcd is at or above it, so that no run forgets a restore that nobody mended.
func (c *checkup) compare(ctx context.Context, epoch int64, at *pb.ResponseHeader, behind bool) {
	endpoints := fmt.Sprintf("%v %s ", c.Claims.Etcd().Endpoints(), c.Claims.Prefix())
	now, cluster := sightingOf(epoch, at)
	last, of := greatest(c.remembered(), endpoints)
	if now.before(last) {
		// Another doctor may have seen a greater revision after this one has read etcd. What is
		// read now is at or above all that was remembered before, unless etcd went back.
		ctx, cancel := context.WithTimeout(ctx, c.Patience)
		defer cancel()
		epoch, at, err := doctor.ReadEpoch(ctx, c.Claims.Etcd(), c.Claims.Prefix())
		if err != nil {
			c.Add(doctor.Warning, doctor.CheckRevision, "run doctor again", "cannot be compared with %d (epoch %d), seen at %s: %v", last.Revision, last.Epoch, doctor.Stamp(last.At), err)
			return
		}
		now, cluster = sightingOf(epoch, at)
	}
	if now.before(last) {
		another := ""
		if of != endpoints+cluster {
			another = " of another cluster"
		}
		c.rewound(last, "went back from %d (epoch %d)%s, seen at %s, to %d (epoch %d)", last.Revision, last.Epoch, another, doctor.Stamp(last.At), now.Revision, now.Epoch)
		return
	}
	if err := c.keep(endpoints, cluster, now); err != nil {
		c.Add(doctor.Warning, doctor.CheckRevision, "let --memory name a file that can be written, or be empty", "cannot be remembered: %v", err)
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
	c.Add(doctor.Error, doctor.CheckRevision, remedy, format, args...)
}

func (c *checkup) forwards(now sighting, behind bool) {
	if !behind {
		c.Well(doctor.CheckRevision, "%d, not behind what was seen before", now.Revision)
	}
}
