//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// interrupts are the signals that end claimctl.
var interrupts = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// passedOn are the signals that the command gets when claimctl gets them: all but
// those in kept.
var passedOn = func() (all []os.Signal) {
	for n := syscall.Signal(1); n <= lastSignal; n++ {
		if !slices.Contains(kept, n) {
			all = append(all, n)
		}
	}
	return all
}()

// kept are the signals that are about claimctl itself.
var kept = []syscall.Signal{
	syscall.SIGKILL, syscall.SIGSTOP, // no process can handle them
	syscall.SIGCHLD, // its child ended or stopped
	syscall.SIGPIPE, // its own output is closed
	syscall.SIGURG,  // Go's runtime sends it all the time
	syscall.SIGPROF, // Go's runtime takes it for its profiler, and hands it to nobody
	// A group in the background gets them when it uses the terminal. If they were
	// handled, the system would repeat the call, and send them again, for ever.
	syscall.SIGTTIN, syscall.SIGTTOU,
}

// ends reports whether a signal asks a process to end. ABRT is what systemd's watchdog
// sends.
func ends(sig os.Signal) bool {
	return sig == syscall.SIGABRT || slices.Contains(interrupts, sig)
}

func signalNumber(sig os.Signal) int {
	n, _ := sig.(syscall.Signal)
	return int(n)
}

// parseSignal takes TERM, SIGTERM and 15.
func parseSignal(s string) (os.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= lastSignal {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return nil, fmt.Errorf("--signal %q is not a signal", s)
}

// child is a command in a process group of its own.
type child struct {
	pid  int
	done chan struct{} // closed when it has ended, and its group is killed
	err  error         // as exec.Cmd.Wait returns it, once done is closed

	mu     sync.Mutex
	reaped bool // its number may belong to another process
}

// startChild starts the command. The thread that starts it lives as long as the
// command: with its death Linux kills the command.
func startChild(cmd *exec.Cmd) (*child, error) {
	terminal := attach(cmd)
	c := &child{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		if err == nil {
			c.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		defer close(c.done)
		awaitEnd(c.pid) // it is dead, and keeps its number
		c.mu.Lock()
		defer c.mu.Unlock()
		if canAwaitEnd {
			_ = syscall.Kill(-c.pid, syscall.SIGKILL) // what it left behind
		}
		c.err = cmd.Wait()
		if !canAwaitEnd {
			_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		}
		c.reaped = true
		terminal.takeBack()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// awaitGroup waits until no process of the ended command's group is alive, which
// SIGKILL takes a moment for. It reports false if d was too short.
func (c *child) awaitGroup(d time.Duration) bool {
	for begun := time.Now(); groupAlive(c.pid); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) >= d {
			return false
		}
	}
	return true
}

// exited reports whether the command has exited, also before it was waited for: claimctl may
// have been stopped meanwhile.
func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
	}
	if !canAwaitEnd {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reaped || hasEnded(c.pid)
}

// signal sends a signal to the command and all in its group.
func (c *child) signal(sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	if canAwaitEnd { // else the lock is held while it runs
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.reaped {
			return
		}
	}
	_ = syscall.Kill(-c.pid, n) // it may have ended
}

func (c *child) kill()   { c.signal(syscall.SIGKILL) }
func (c *child) resume() { c.signal(syscall.SIGCONT) }

// exitOf returns the code with which a shell would report how the command ended.
func exitOf(exit *exec.ExitError) int {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return exit.ExitCode()
}

// terminal is what the command reads from, if it is a terminal that claimctl has.
type terminal struct {
	file  *os.File // nil if there is none
	group int
}

// attach gives the command a group of its own, and the terminal: a process that
// reads from it outside of its foreground group is stopped.
func attach(cmd *exec.Cmd) terminal {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieTogether(cmd.SysProcAttr)
	file, ok := cmd.Stdin.(*os.File)
	if !ok || file == nil {
		return terminal{}
	}
	fd := int(file.Fd())
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		return terminal{}
	}
	cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, fd
	return terminal{file, group}
}

// takeBack makes claimctl the foreground group again.
func (t terminal) takeBack() {
	if t.file == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // which a group in the background gets for it
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.group)
}
