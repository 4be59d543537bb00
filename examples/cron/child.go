package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// A child is a process, as the parent sees it.
type child struct {
	*testetcd.Child
	name       string
	in         io.WriteCloser
	complaints bytes.Buffer
}

// startChild starts a process. What it tells is passed on from another goroutine.
func startChild(s setup, tell func(*child, event)) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{name: s.Name}
	cmd := exec.Command(self, processCommand)
	cmd.Stderr = &c.complaints
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.Child, err = testetcd.StartChild(cmd); err != nil {
		return nil, err
	}
	go func() {
		var e event
		for events := json.NewDecoder(out); events.Decode(&e) == nil; e = (event{}) {
			tell(c, e)
		}
	}()
	return c, c.order(s)
}

func (c *child) order(v any) error { return json.NewEncoder(c.in).Encode(v) }

// ended says how the process ended, nil if it goes on.
func (c *child) ended() error {
	select {
	case <-c.Dead():
		return fmt.Errorf("%s ended: %w: %s", c.name, c.Err(), bytes.TrimSpace(c.complaints.Bytes()))
	default:
		return nil
	}
}

// finish waits until the process has ended by itself, which it does since there
// are no orders any more.
func (c *child) finish() error {
	_ = c.in.Close()
	select {
	case <-c.Dead():
	case <-time.After(20 * time.Second):
		c.Kill()
	}
	if c.Err() != nil {
		return c.ended()
	}
	return nil
}
