//go:build !unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// interrupts are the signals that end claimctl.
var interrupts = []os.Signal{os.Interrupt}

// passedOn are the signals that claimctl outlives. The command gets them from the
// system.
var passedOn = []os.Signal{os.Interrupt}

func ends(os.Signal) bool { return true }

func signalNumber(os.Signal) int { return 2 }

// parseSignal accepts the default only: processes are killed here.
func parseSignal(s string) (os.Signal, error) {
	if !strings.EqualFold(s, "TERM") {
		return nil, fmt.Errorf("--signal %q: this system has no signals", s)
	}
	return nil, nil
}

// child is a command. It cannot be asked to end here, only killed.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func startChild(cmd *exec.Cmd) (*child, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = cmd.Wait()
	}()
	return c, nil
}

func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) awaitGroup(time.Duration) bool { return true } // there are no groups

func (c *child) signal(os.Signal) {}
func (c *child) resume()          {}
func (c *child) kill()            { _ = c.cmd.Process.Kill() } // it may have ended

func exitOf(exit *exec.ExitError) int { return exit.ExitCode() }
