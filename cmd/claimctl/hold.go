package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
)

// hold runs the command under the claim, and gives the claim up when the command
// has ended, and not before.
func (r *runner) hold(path string, h *holding) error {
	env := append(inherited(os.Environ()), environment(h)...)
	cmd := &exec.Cmd{Path: path, Args: r.argv, Env: env, Stdin: r.in, Stdout: r.out, Stderr: r.err}
	c, err := startChild(cmd)
	if err != nil {
		return errors.Join(&exitError{exitCannotRun, fmt.Errorf("run %q: %w", r.key, err)}, r.giveUp(h, nil))
	}
	r.watchOver(c, h)
	var exit *exec.ExitError
	if errors.As(c.err, &exit) && exitOf(exit) == exitSignal+signalNumber(syscall.SIGHUP) {
		h.interrupted = syscall.SIGHUP
	}
	if left := h.left(); !c.awaitGroup(left) && left > 0 {
		r.complain("the command left processes behind that SIGKILL does not end", 0)
	}
	lost := h.Err()
	var l *etcdclaims.LostError
	if !errors.As(lost, &l) {
		lost = nil
	}
	switch err := r.giveUp(h, c); {
	case lost == nil && errors.Is(err, etcdclaims.ErrLost):
		lost = err
	case err != nil && lost == nil && !h.over:
		if h.work != nil { // whether it counts as done matters to the caller
			return err
		}
		r.complain(fmt.Sprintf("the key may stay held until its lease ends: %v", err), 0)
	}
	switch {
	case lost == nil && !h.over:
		return childExit(c)
	case lost == nil:
		cause := context.Cause(h.Context())
		if cause == nil { // the deadline was seen here first
			cause = &etcdclaims.LostError{Token: h.Token(), Reason: etcdclaims.ReasonExpired}
		}
		lost = fmt.Errorf("run %q: stopped before the claim ended: %w", r.key, cause)
	}
	h.over = h.over || c.err != nil // a command that ended by itself with 0 has done its work
	if h.killed {
		return r.ended("killed", lost)
	}
	return r.ended("lost", lost)
}

// inherited returns the environment without the claim of another claimctl run.
func inherited(env []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		return strings.HasPrefix(v, "CLAIM_") || strings.HasPrefix(v, "FENCING_TOKEN=")
	})
}

// environment is what the command finds about its claim.
func environment(h *holding) []string {
	env := []string{
		"FENCING_TOKEN=" + h.Token().String(),
		"CLAIM_KEY=" + h.Key(),
		"CLAIM_FENCE=" + strconv.FormatInt(h.Fence(), 10),
		"CLAIM_ID=" + h.ID(),
		"CLAIM_OWNER=" + h.Owner(),
		"CLAIM_DEADLINE=" + time.Now().Add(h.left()).UTC().Format(time.RFC3339Nano),
	}
	if h.slotted {
		env = append(env, "CLAIM_SLOT="+strconv.Itoa(h.Slot()))
	}
	if h.work != nil {
		env = append(env, "CLAIM_ATTEMPT="+strconv.Itoa(h.work.Attempt()))
	}
	return env
}

// watchOver passes signals on, and sees to it that the command has ended before
// the claim does. It returns when the command has ended.
func (r *runner) watchOver(c *child, h *holding) {
	stopping, lost := h.Context().Done(), h.Done()
	var asked time.Time
	// The time that is left is read again and again: a late renewal makes it longer,
	// and a suspended machine makes it shorter than a timer would.
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	kill := func() {
		if c.exited() { // by itself: c.done follows
			return
		}
		h.over, h.killed = true, true
		c.kill()
		ticker.Stop()
	}
	for {
		select {
		case <-c.done:
			return
		case sig := <-r.signals:
			if ends(sig) && sig != syscall.SIGHUP { // it may be a reload
				h.interrupted = sig
			}
			c.signal(sig)
		case <-stopping:
			stopping = nil
			if c.exited() {
				continue
			}
			h.over = true
			asked = time.Now()
			c.signal(r.stop)
			c.resume() // a stopped process hears of nothing else
		case <-ticker.C:
			if h.left() <= killAhead || !asked.IsZero() && time.Since(asked) >= r.grace {
				kill()
			}
		case <-lost:
			kill()
			lost = nil
		}
	}
}

// giveUp releases the claim, or ends the work as the command did; c is nil if it
// did not start.
func (r *runner) giveUp(h *holding, c *child) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.commandTimeout)
	defer cancel()
	if h.work == nil {
		return h.Release(ctx)
	}
	var reason *etcdclaims.LostError
	switch {
	case c == nil:
		return h.work.Release(ctx)
	case c.err == nil:
		return h.work.Complete(ctx)
	case r.atMostOnce:
		_, err := h.work.Fail(ctx, etcdclaims.Permanent(fmt.Errorf("the command ended with %w", c.err)))
		return err
	case h.interrupted != nil, h.over && !(errors.As(context.Cause(h.Context()), &reason) && reason.Reason == etcdclaims.ReasonMaxHold):
		return h.work.Release(ctx) // it was not its fault
	}
	_, err := h.work.Fail(ctx, fmt.Errorf("the command ended with %w", c.err))
	return err
}

// childExit returns the command's own exit.
func childExit(c *child) error {
	var exit *exec.ExitError
	switch {
	case c.err == nil:
		return nil
	case errors.As(c.err, &exit):
		return &exitError{code: exitOf(exit)}
	}
	return &exitError{exitFailure, c.err}
}
