package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// workers are all of them, as the parent sees them: slots that keep their links,
// and in each one worker after the other.
type workers struct {
	o     options
	net   network
	slots []*workerProcess

	watching sync.WaitGroup

	mu     sync.Mutex
	deaths map[string]time.Time // of workers that were killed
	ends   []error              // of workers that ended otherwise than they were told to
}

// workerProcess is one worker, as the parent sees it.
type workerProcess struct {
	name  string
	child *testetcd.Child
	in    io.WriteCloser

	mu    sync.Mutex
	ended bool // by the parent
}

func startWorkers(o options, net network) (*workers, error) {
	c := &workers{o: o, net: net, slots: make([]*workerProcess, o.workers), deaths: map[string]time.Time{}}
	for slot := range c.slots {
		if err := c.start(slot, 1); err != nil {
			c.kill()
			return nil, err
		}
	}
	return c, nil
}

// workerName names the n-th worker of a slot.
func workerName(slot, n int) string { return fmt.Sprintf("w%d.%d", slot, n) }

// start starts the n-th worker of a slot, whose worker before has ended.
func (c *workers) start(slot, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	name := workerName(slot, n)
	log, err := os.Create(filepath.Join(c.o.dir, name+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command(self, workerCommand)
	cmd.Stdout, cmd.Stderr = log, log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	child, err := testetcd.StartChild(cmd)
	if err != nil {
		return fmt.Errorf("starting worker %s: %w", name, err)
	}
	h := &workerProcess{name: name, child: child, in: in}
	c.mu.Lock()
	c.slots[slot] = h
	c.mu.Unlock()
	c.watching.Go(func() { c.watch(h) })
	return json.NewEncoder(in).Encode(job{
		Name: name, Endpoints: c.net.endpoints(slot), TTL: c.o.ttl, Keys: c.o.keys, Dir: c.o.dir,
		Seed: c.o.seed + uint64(slot)<<32 + uint64(n),
	})
}

// watch waits for the end of a worker, and records an end that was not requested.
func (c *workers) watch(h *workerProcess) {
	err := h.child.Err()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended && err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, killed := c.deaths[h.name]; killed {
		return
	}
	if err == nil {
		err = errors.New("it ended without an error")
	}
	c.ends = append(c.ends, fmt.Errorf("%s: %w; see %s.log", h.name, err, h.name))
}

func (c *workers) at(slot int) *workerProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots[slot]
}

// killAt kills the worker of a slot, and returns its name.
func (c *workers) killAt(slot int) string {
	h := c.at(slot)
	c.mu.Lock()
	c.deaths[h.name] = time.Now()
	c.mu.Unlock()
	h.child.Kill()
	return h.name
}

// stopAll asks all workers to end, and kills those that have not ended when patience
// is over, which is an error. No worker may be paused.
func (c *workers) stopAll(patience time.Duration) {
	for slot := range c.slots {
		h := c.at(slot)
		h.mu.Lock()
		h.ended = true
		h.mu.Unlock()
		_ = h.in.Close() // if it is dead, that is noted elsewhere
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for slot := range c.slots {
		select {
		case <-c.at(slot).child.Dead():
			continue
		case <-deadline.C:
			deadline.Reset(0) // for the others, too
		}
		err := fmt.Errorf("%s: still there %v after it was told to end", c.killAt(slot), patience)
		c.mu.Lock()
		c.ends = append(c.ends, err)
		c.mu.Unlock()
	}
	c.watching.Wait()
}

// kill ends all workers at once, when the run has failed.
func (c *workers) kill() {
	for slot := range c.slots {
		if c.at(slot) != nil {
			c.killAt(slot)
		}
	}
	c.watching.Wait()
}

// report returns when workers were killed, and an error for each worker that ended
// by itself or did not end when asked to.
func (c *workers) report() (deaths map[string]time.Time, ends []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deaths, c.ends
}
