package sched

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/live"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// definitions keeps the defined jobs of the catalog up to date. Its state belongs to the
// goroutine of followDefinitions.
type definitions struct {
	*catalog
	feed  *live.Feed
	known map[string]*defined // by the digest of the job
	dirty map[string]bool     // those whose jobs must be made again
}

// defined is a definition as far as this process has read it.
type defined struct {
	notice
	rev        int64 // of the notice
	read       bool
	definition Definition
	err        error // why it cannot be read
}

const readingDefinitions = "read the definitions"

// readsAtOnce is how many definitions one request reads.
const readsAtOnce = 32

// followDefinitions takes over definitions until ctx ends.
func followDefinitions(ctx context.Context, in *catalog) {
	c := &definitions{
		catalog: in, feed: in.view.Subscribe(live.KindDefined),
		known: make(map[string]*defined), dirty: make(map[string]bool),
	}
	defer c.view.Unsubscribe(c.feed)
	c.dropFollowers()
	defer c.undefineAll()
	for try := 0; ctx.Err() == nil; {
		synced := c.view.Synced
		complete := c.view.IsSynced() // the feed has all notices that existed when this process began
		if complete {
			synced = nil
		}
		c.absorb()
		c.knowsFollowers(complete)
		err := c.update(ctx)
		switch {
		case err == nil:
			try = 0
			c.outage.Succeed(readingDefinitions)
			c.complete.Store(complete)
		case ctx.Err() == nil:
			c.outage.Fail(readingDefinitions, err, zap.String("etcd_key", c.keys.Definitions()))
			retry.Pause(ctx, try)
			try++
			continue
		}
		select {
		case <-c.feed.News:
		case <-synced: // the notices that existed can be absorbed
		case <-c.relink:
			for id, d := range c.known {
				c.dirty[id] = c.dirty[id] || !c.inCode(d.Job)
			}
		case <-ctx.Done():
		}
	}
}

// absorb takes over the notices that have changed.
func (c *definitions) absorb() {
	for key, is := range c.view.Take(c.feed) {
		id := strings.TrimPrefix(key, c.keys.AllDefined())
		was := c.known[id]
		n, err := notice{}, error(nil)
		if !is.Gone {
			n, err = decode[notice](key, []byte(is.Value))
		}
		if was != nil && (is.Gone || err != nil || n.Job != was.Job) {
			c.setFollower(tick.Follower{Job: was.Job})
			c.setDefined(was.Job, nil)
			delete(c.known, id)
		}
		if err != nil {
			c.log.Error("definition ignored: its notice cannot be read", zap.String("etcd_key", key), zap.Error(err))
		}
		if is.Gone || err != nil {
			continue
		}
		// The follower is replaced in one step: a success in between would request no tick.
		c.setFollower(tick.Follower{Following: n.Following, Job: n.Job, Defined: is.Rev})
		if was != nil && was.rev == is.Rev {
			continue // the definition was read before its notice arrived
		}
		c.known[id] = &defined{notice: n, rev: is.Rev}
		c.dirty[id] = true
	}
}

// update makes the jobs of the definitions that have changed.
func (c *definitions) update(ctx context.Context) error {
	var unread []string
	for id, dirty := range c.dirty {
		d := c.known[id]
		switch {
		case d == nil || !dirty:
			delete(c.dirty, id)
		case !d.read:
			unread = append(unread, id)
		default:
			c.publish(id, d)
		}
	}
	for some := range slices.Chunk(unread, readsAtOnce) {
		if err := c.readSome(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// readSome reads definitions.
func (c *definitions) readSome(ctx context.Context, ids []string) error {
	var ops txn.Ops
	var reads []txn.Op
	for _, id := range ids {
		reads = append(reads, ops.Add(clientv3.OpGet(c.keys.Definitions()+id)))
	}
	resp, err := retry.Read(ctx, core.Of(c.claims).KV(), readTime, ops...)
	if err != nil {
		return txn.Denied(err)
	}
	reply := txn.ReplyIn(resp)
	for i, id := range ids {
		d := c.known[id]
		kv := reply.First(reads[i])
		d.read = true
		if kv == nil { // the notice is about to go too
			c.setDefined(d.Job, nil)
			c.setFollower(tick.Follower{Job: d.Job})
			delete(c.known, id)
			continue
		}
		// It can be newer than the notice that is known, whose successor is on its way.
		d.rev = kv.ModRevision
		d.definition, d.err = definitionFrom(kv)
		if d.err == nil && (d.definition.Name != d.Job || keyspace.Digest(d.Job) != id) {
			d.err = fmt.Errorf("the value of %s is that of job %.80q", kv.Key, d.definition.Name)
		}
		c.publish(id, d)
	}
	return nil
}

// publish makes the job of a definition. An iCalendar text takes a fraction of a second at most.
func (c *definitions) publish(id string, d *defined) {
	delete(c.dirty, id)
	job := c.jobOf(d)
	c.setDefined(d.Job, &job)
}

// jobOf returns the job of a definition that was read. It changes nothing.
func (c *catalog) jobOf(d *defined) Job {
	kind := d.definition.Kind
	handler := c.handlerOf(kind)
	job, err := Job{}, d.err
	switch {
	case err != nil:
	case handler == nil:
		err = fmt.Errorf("the owner of the group has no handler of kind %q", kind)
	default:
		if job, err = d.definition.job(handler, c.parser()); err == nil {
			err = c.checkPlace(job)
		}
	}
	if err == nil {
		return job
	}
	job = Job{Name: d.Job, Schedule: after{}, kind: kind, defined: d.rev, problem: limitText(err.Error())}
	if schedule, err := d.definition.schedule(c.parser()); d.err == nil && err == nil {
		job.Schedule, job.Overdue = schedule, d.definition.Overdue // for the alarm: the job does not run
	}
	return job.ruled()
}
