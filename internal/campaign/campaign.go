package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
)

const memberCount = 3

// A campaign is one run. Its parts are there once run has made them.
type campaign struct {
	o        options
	out      io.Writer
	began    time.Time
	members  *members
	net      network
	workers  *workers
	observer *observer
	faults   *faultLog
}

func newCampaign(o options, out io.Writer) *campaign {
	c := &campaign{o: o, out: out, began: time.Now()}
	c.faults = &faultLog{print: c.line}
	return c
}

// run makes the faults, heals them, and judges.
func (c *campaign) run(ctx context.Context) error {
	c.line("seed %d: %d workers, %d keys, TTL %v, faults for %v", c.o.seed, c.o.workers, c.o.keys, c.o.ttl, c.o.length)
	// What an interrupt cuts short is the faults: all else takes its own time.
	whole := context.WithoutCancel(ctx)
	stop, err := c.start(whole)
	defer stop()
	if err != nil {
		return err
	}

	storm, cancel := context.WithTimeout(ctx, c.o.length)
	defer cancel()
	if err := newNemesis(c.o, c.members, c.workers, c.observer, c.faults).run(storm); err != nil {
		return err
	}
	healed := time.Now()
	c.line("healed; waiting for what is left")
	if err := c.restQueue(whole); err != nil {
		return err
	}
	stuck := c.quiet(whole, healed)
	c.workers.stopAll(2*c.o.ttl + 10*time.Second)
	return c.conclude(whole, stuck)
}

// start starts everything. What it returns stops what was started.
func (c *campaign) start(ctx context.Context) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	}
	if c.members, err = startMembers(c.o.dir, memberCount); err != nil {
		return stop, err
	}
	stops = append(stops, c.members.close)
	if c.observer, err = observe(ctx, c.members); err != nil {
		return stop, err
	}
	stops = append(stops, c.observer.close)
	var addrs []string
	for _, url := range c.members.cluster.Endpoints() {
		addrs = append(addrs, strings.TrimPrefix(url, "http://"))
	}
	if c.net, err = openNetwork(c.o.workers, addrs); err != nil {
		return stop, err
	}
	stops = append(stops, c.net.close)
	if c.workers, err = startWorkers(c.o, c.net); err != nil {
		return stop, err
	}
	stops = append(stops, c.workers.kill)
	return stop, nil
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
	left := c.wanted()
	for len(left) > 0 && in(bound) {
		maps.DeleteFunc(left, func(key string, _ bool) bool { return c.observer.begunSince(healed, key) })
		retry.Sleep(ctx, 20*time.Millisecond)
	}
	for key := range left {
		stuck = append(stuck, fmt.Sprintf("%s: no new owner %v after all was healed", key, bound))
	}
	const slack = 20 * time.Second
	for queued := -1; queued != 0 && in(bound+slack); retry.Sleep(ctx, 100*time.Millisecond) {
		if n, err := c.queued(ctx); err == nil {
			queued = n
		}
	}
	return stuck
}

// wanted returns the keys that many callers want at any time.
func (c *campaign) wanted() map[string]bool {
	all := map[string]bool{fencedSetKey: true}
	for i := range suspectKeys {
		all[suspectName(i)] = true
	}
	for i := range c.o.keys {
		all[keyName(i)] = true
	}
	return all
}

// conclude gathers the evidence, judges and prints.
func (c *campaign) conclude(ctx context.Context, stuck []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.observer.finish(ctx); err != nil {
		return err
	}
	end := time.Now()
	c.observer.close()
	faults := c.faults.all()
	ev, err := gather(ctx, c.o.dir, c.members, c.observer.ownership)
	if err != nil {
		return fmt.Errorf("gathering the evidence: %w", err)
	}
	var ends []error
	ev.deaths, ends = c.workers.report()
	v := judge(ev)
	pickups := findPickups(c.observer.ownership, faults, c.o.ttl, end)
	for _, p := range pickups {
		if p.late() {
			v.find(overtime, "%v", p)
		}
	}
	v.findings[overtime] = slices.Concat(v.findings[overtime], stuck, slowSuspicion(pickups))
	if c.o.length >= 10*time.Minute && v.figures[countSuspected] == 0 { // a minute has two to four
		v.find(barred, "no holder was suspected in all that time")
	}
	for _, err := range ends {
		v.find(ended, "%v", err)
	}
	v.findings[unexplained] = c.observer.unexplained(faults)
	terms, takeOvers := c.observer.count()
	v.count("terms", terms)
	v.count("terms that began after a lease had lapsed", takeOvers)
	for _, f := range faults {
		if f.failed {
			v.count("faults that could not be made", 1)
		} else {
			v.count("faults: "+string(f.kind), 1)
		}
	}
	r := report{v: v, pickups: pickups, ttl: c.o.ttl, stalled: c.observer.stalls.within(time.Time{}, end)}
	if err := r.print(c.out); err != nil {
		return err
	}
	if !v.held() {
		return errors.Join(errViolated, fmt.Errorf("seed %d", c.o.seed))
	}
	return nil
}
