package testetcd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// A Child is a process that can be paused and killed, and that does not outlive
// this one where the system can see to that.
type Child struct {
	cmd  *exec.Cmd
	dead chan struct{} // closed when it was reaped
	err  error         // how it ended, once it has
}

// StartChild starts the command, which must not be started or waited for
// otherwise.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	dieWithParent(cmd)
	c := &Child{cmd: cmd, dead: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel kills the child when the thread dies that started it, not
		// the process: so a thread of its own stays with it to the end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.dead)
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// Pid returns the process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Dead is closed when the process has ended, for whatever reason.
func (c *Child) Dead() <-chan struct{} { return c.dead }

// Await calls ready every 20 ms until it returns nil. It returns an error if the process
// ends before, or ctx.
func (c *Child) Await(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-c.dead:
			return fmt.Errorf("%s ended: %w", c.cmd.Path, c.err)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w)", c.cmd.Path, err, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Err waits for the end of the process, and returns what was wrong with it.
func (c *Child) Err() error {
	<-c.dead
	return c.err
}

// Pause stops the process where it is, as SIGSTOP does: its connections stay
// open and nothing answers. All its threads have stopped when Pause returns
// without an error.
func (c *Child) Pause() error {
	if err := stopProcess(c.cmd.Process); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		stopped, err := isStopped(c.Pid())
		if err != nil || stopped {
			return err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("it goes on: %w", err)
		}
	}
}

// Resume lets a paused process go on.
func (c *Child) Resume() error { return continueProcess(c.cmd.Process) }

// Kill kills the process without warning, paused or not, and waits for its end.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // it may be dead already
	<-c.dead
}

// Signals returns nil if processes can be paused on this system, and otherwise
// an error that matches errors.ErrUnsupported.
func Signals() error {
	if canSignal {
		return nil
	}
	return fmt.Errorf("testetcd: processes cannot be paused with SIGSTOP on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
