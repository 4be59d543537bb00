package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A board shows how far the run is: on a terminal a line that is drawn over and
// over, elsewhere one every few seconds.
type board struct {
	out      io.Writer
	began    time.Time
	terminal bool

	mu    sync.Mutex
	drawn bool // there is a line to draw over
}

func newBoard(out io.Writer) *board {
	b := &board{out: out, began: time.Now()}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		b.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return b
}

// every is how often it is worth to draw.
func (b *board) every() time.Duration {
	if b.terminal {
		return 200 * time.Millisecond
	}
	return 5 * time.Second
}

// line prints a line that stays.
func (b *board) line(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.print("\n", format, args...)
	b.drawn = false
}

// draw prints how much of the time is over, and what there is to tell.
func (b *board) draw(length time.Duration, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.terminal {
		b.print("\n", format, args...)
		return
	}
	const full = 20
	filled := int(full * min(time.Since(b.began), length) / length)
	text := fmt.Sprintf("[%s%s] %s", strings.Repeat("#", filled), strings.Repeat(".", full-filled), fmt.Sprintf(format, args...))
	const width = 140 // a line that the terminal wraps would not be drawn over
	if len(text) > width {
		text = text[:width]
	}
	b.print("", "%s", text)
	b.drawn = true
}

// leave moves on from the line that was drawn last.
func (b *board) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		_, _ = io.WriteString(b.out, "\n")
	}
	b.drawn = false
}

func (b *board) print(end, format string, args ...any) {
	begin := ""
	if b.drawn {
		begin = "\r\x1b[K"
	}
	// If nobody reads it, there is still the exit code.
	_, _ = fmt.Fprintf(b.out, "%s%6.1f s  %s%s", begin, time.Since(b.began).Seconds(), fmt.Sprintf(format, args...), end)
}
