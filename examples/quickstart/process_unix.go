//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

func checkPlatform() error { return nil }

// freeze stops a process as if the machine had no time for it.
func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func thaw(p *os.Process) error   { return p.Signal(syscall.SIGCONT) }

// notifyThawed returns a channel that tells when this process goes on after it
// was frozen.
func notifyThawed() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCONT)
	return c
}

// terminalWidth returns how many characters a line may have. ok is false if f is
// no terminal.
func terminalWidth(f *os.File) (width int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	if size.Col == 0 { // terminals may not know
		return 80, true
	}
	return int(size.Col), true
}
