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

const workerCount = 6

// workers are all of them, as the parent sees them: slots that keep their links,
// and in each one worker after the other.
type workers struct {
	o        options
	net      network
	watching sync.WaitGroup

	mu    sync.Mutex
	slots [workerCount]*workerProcess
	ends  []error // of workers that ended otherwise than they were told to
}

// workerProcess is one worker, as the parent sees it.
type workerProcess struct {
	name  string
	life  int // counts the workers of the slot
	child *testetcd.Child
	in    io.WriteCloser

	killed, told bool // by the parent, to end
}

// start starts the next worker of a slot, whose worker before has ended.
func (c *workers) start(slot int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	h := &workerProcess{life: 1}
	if before := c.at(slot); before != nil {
		h.life = before.life + 1
	}
	h.name = fmt.Sprintf("w%d.%d", slot, h.life)
	log, err := os.Create(filepath.Join(c.o.dir, h.name+".log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command(self, workerCommand)
	cmd.Stdout, cmd.Stderr = log, log
	if h.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if h.child, err = testetcd.StartChild(cmd); err != nil {
		return fmt.Errorf("starting worker %s: %w", h.name, err)
	}
	c.mu.Lock()
	c.slots[slot] = h
	c.mu.Unlock()
	c.watching.Go(func() { c.watch(h) })
	order := job{Name: h.name, TTL: c.o.ttl, Dir: c.o.dir, Seed: c.o.seed + uint64(slot)<<32 + uint64(h.life)}
	for _, l := range c.net[slot] {
		order.Endpoints = append(order.Endpoints, "http://"+l.addr())
	}
	return json.NewEncoder(h.in).Encode(order)
}

// watch waits for the end of a worker, and records an end that was not requested.
func (c *workers) watch(h *workerProcess) {
	err := h.child.Err()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case h.told && h.killed:
		err = errors.New("it was still there when it was to have ended")
	case h.killed, h.told && err == nil:
		return
	case err == nil:
		err = errors.New("it ended without an error")
	}
	c.ends = append(c.ends, fmt.Errorf("%s: %w; see %s.log", h.name, err, h.name))
}

// at returns the worker of a slot, or nil.
func (c *workers) at(slot int) *workerProcess {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots[slot]
}

// killAt kills the worker of a slot.
func (c *workers) killAt(slot int) {
	h := c.at(slot)
	if h == nil {
		return
	}
	c.mu.Lock()
	h.killed = true
	c.mu.Unlock()
	h.child.Kill()
}

// stop asks all workers to end, and kills those that have not ended when patience
// is over. It returns an error for each worker of the run that ended by itself, or did not
// when it was asked to. No worker may be paused.
func (c *workers) stop(patience time.Duration) []error {
	c.mu.Lock()
	for _, h := range c.slots {
		h.told = true
		_ = h.in.Close() // if it is dead, that is noted elsewhere
	}
	c.mu.Unlock()
	late := time.AfterFunc(patience, c.kill)
	c.watching.Wait()
	late.Stop()
	return c.ends
}

// kill ends all workers at once.
func (c *workers) kill() {
	for slot := range c.slots {
		c.killAt(slot)
	}
	c.watching.Wait()
}
