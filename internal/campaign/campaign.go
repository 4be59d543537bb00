package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
)

// A campaign is one run. Its parts are there once run has made them.
type campaign struct {
	o        options
	out      io.Writer
	began    time.Time
	members  *members
	workers  *workers
	observer *observer
}

// run makes the faults, heals them, and judges.
func (c *campaign) run(ctx context.Context) (err error) {
	c.line("seed %d: TTL %v, faults for %v", c.o.seed, c.o.ttl, c.o.length)
	// What an interrupt cuts short is the faults: all else takes its own time.
	whole := context.WithoutCancel(ctx)
	if c.members, err = startMembers(c.o.dir); err != nil {
		return err
	}
	defer c.members.close()
	c.observer = observe(whole, c.members)
	defer c.observer.close()
	c.workers = &workers{o: c.o}
	defer c.workers.net.close()
	if err := c.workers.net.open(c.members.cluster.Endpoints()); err != nil {
		return err
	}
	defer c.workers.kill()
	for slot := range workerCount {
		if err := c.workers.start(slot); err != nil {
			return err
		}
	}

	storm, cancel := context.WithTimeout(ctx, c.o.length)
	defer cancel()
	n := &nemesis{
		ttl: c.o.ttl, r: rand.New(rand.NewPCG(c.o.seed, 0)), members: c.members, workers: c.workers, observer: c.observer,
		line: c.line,
	}
	faults, err := n.run(storm)
	if err != nil {
		return err
	}
	healed := time.Now()
	c.line("healed; waiting for what is left")
	if err := c.restQueue(whole); err != nil {
		return err
	}
	stuck := c.quiet(whole, healed)
	ends := c.workers.stop(2*c.o.ttl + 10*time.Second)
	return c.conclude(whole, faults, stuck, ends)
}

// line prints a line. If nobody reads it, there is still the exit code.
func (c *campaign) line(format string, args ...any) {
	_, _ = fmt.Fprintf(c.out, "%6.1f s  %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// quiet waits until every item of the queue is completed and every key has had a new owner since
// all was healed. It returns the keys that have not in time: none may stay stuck
// for longer than a pick-up after the loss of the leader takes. Items get some
// time more, as each is one of many; those that are not done by then are lost. Stalls of
// this program are added to all that.
func (c *campaign) quiet(ctx context.Context, healed time.Time) (stuck []string) {
	bound := leaderBound(c.o.ttl) + settling
	in := func(bound time.Duration) bool {
		return time.Since(healed) < bound+c.observer.stalls.within(healed, time.Now())
	}
	wanted := []string{setKey} // at any time, by many callers
	for i := range suspectCount {
		wanted = append(wanted, suspectName(i))
	}
	for i := range keyCount {
		wanted = append(wanted, keyName(i))
	}
	for _, key := range wanted {
		for in(bound) && !c.observer.begunSince(healed, key) {
			retry.Sleep(ctx, 20*time.Millisecond)
		}
		if !c.observer.begunSince(healed, key) {
			stuck = append(stuck, fmt.Sprintf("%s: no new owner %v after all was healed", key, bound))
		}
	}
	const slack = 20 * time.Second
	for queued := -1; queued != 0 && in(bound+slack); retry.Sleep(ctx, 100*time.Millisecond) {
		if n, err := c.queued(ctx); err == nil {
			queued = n
		}
	}
	return stuck
}

// conclude gathers the evidence, judges and prints.
func (c *campaign) conclude(ctx context.Context, faults []*fault, stuck []string, ends []error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.observer.finish(ctx); err != nil {
		return err
	}
	end := time.Now()
	c.observer.close()
	ev, err := gather(ctx, c.o.dir, c.members, c.observer.ownership)
	if err != nil {
		return fmt.Errorf("gathering the evidence: %w", err)
	}
	v := judge(ev)
	pickups := findPickups(c.observer.ownership, faults, c.o.ttl, end)
	for _, p := range pickups {
		if p.late() {
			v.find(overtime, "%v", p)
		}
	}
	if slowSuspicion(pickups) {
		v.find(overtime, "half of the pick-ups from suspected holders took longer than %v", suspicionMedian)
	}
	for _, key := range stuck {
		v.find(overtime, "%s", key)
	}
	if c.o.length >= 10*time.Minute && v.figures[countSuspected] == 0 { // a minute has two to four
		v.find(barred, "no holder was suspected in all that time")
	}
	for _, err := range ends {
		v.find(ended, "%v", err)
	}
	for _, f := range faults {
		kind := string(f.kind)
		if f.failed {
			kind = "that could not be made"
		}
		v.count("faults: "+kind, 1)
	}
	if err := report(c.out, v, pickups, c.o.ttl, c.observer.stalls.within(time.Time{}, end)); err != nil {
		return err
	}
	if !v.held() {
		return fmt.Errorf("something did not hold in the run of seed %d", c.o.seed)
	}
	return nil
}
