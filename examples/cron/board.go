package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// A board shows what happens: lines that stay, and one of what is the case now,
// which on a terminal is written over again and again. Its methods may be called
// from any goroutine.
type board struct {
	out      *os.File
	began    time.Time
	terminal bool

	mu    sync.Mutex
	shown time.Time // when it said last what is the case
}

func newBoard(out *os.File) *board {
	info, err := out.Stat()
	return &board{
		out: out, began: time.Now(), shown: time.Now(),
		terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb",
	}
}

// line prints a line that stays.
func (b *board) line(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.print(fmt.Sprintf(format, args...) + "\n")
}

// show says what is the case, if it is time to.
func (b *board) show(now string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch since := time.Since(b.shown); {
	case b.terminal && since >= 100*time.Millisecond:
		b.print(now)
	case !b.terminal && since >= 5*time.Second:
		b.print(now + "\n")
	default:
		return
	}
	b.shown = time.Now()
}

// print writes in one go, so that nothing flickers.
func (b *board) print(s string) {
	s = fmt.Sprintf("%6.1f s  %s", time.Since(b.began).Seconds(), s)
	if b.terminal {
		s = "\r\x1b[K" + s
	}
	_, _ = b.out.WriteString(s) // if nobody reads it, there is still the exit code
}
