package main

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"
)

// A board shows what happens: lines that stay, and below them, on a terminal, a
// block that is drawn over and over. Elsewhere the block is a line now and then.
// It belongs to one goroutine.
type board struct {
	out      *os.File
	began    time.Time
	terminal bool
	rows     int // of the block as it stands there now
	drawn    time.Time
	last     string
}

func newBoard(out *os.File) *board {
	_, terminal := terminalWidth(out)
	return &board{out: out, began: time.Now(), terminal: terminal && os.Getenv("TERM") != "dumb"}
}

// A row is what the block says of one worker.
type row struct {
	name, state string
	done        int
}

// line prints a line that stays.
func (b *board) line(format string, args ...any) {
	var s strings.Builder
	b.erase(&s)
	fmt.Fprintf(&s, "%5.1f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
	b.print(s.String())
	if b.terminal {
		b.drawn = time.Time{} // the line is where the block was
	}
}

// draw draws the block, if it is time to.
func (b *board) draw(rows []row, done, total int) {
	every := 2 * time.Second
	if b.terminal {
		every = 100 * time.Millisecond
	}
	if time.Since(b.drawn) < every {
		return
	}
	if b.terminal {
		b.drawBlock(rows, done, total)
	} else {
		b.drawLine(rows, done, total)
	}
	b.drawn = time.Now()
}

// leave draws the block for the last time: it stays.
func (b *board) leave(rows []row, done, total int) {
	b.drawn = time.Time{}
	b.draw(rows, done, total)
	b.rows = 0
}

func (b *board) drawBlock(rows []row, done, total int) {
	const full = 30
	filled := full * min(done, total) / total
	bar := strings.Repeat("#", filled) + strings.Repeat(".", full-filled)
	lines := []string{""}
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("         %-10s %-9s %6d files", r.name, r.state, r.done))
	}
	lines = append(lines, fmt.Sprintf("%5.1f s  %-20s %6d of %d [%s]", time.Since(b.began).Seconds(), "all", done, total, bar))

	var s strings.Builder
	b.erase(&s)
	width, _ := terminalWidth(b.out)
	for _, line := range lines {
		// A line that the terminal wraps would count as two when it is erased.
		if len(line) >= width {
			line = line[:max(width-1, 0)]
		}
		s.WriteString(line + "\n")
	}
	b.print(s.String())
	b.rows = len(lines)
}

func (b *board) drawLine(rows []row, done, total int) {
	var s strings.Builder
	fmt.Fprintf(&s, "%d of %d files:", done, total)
	for i, r := range rows {
		if i > 0 {
			s.WriteByte(',')
		}
		fmt.Fprintf(&s, " %s %s %d", r.name, r.state, r.done)
	}
	if s.String() == b.last {
		return
	}
	b.last = s.String()
	b.line("%s", b.last)
}

// short is enough of a path to tell files apart on one line.
func short(file string) string {
	const enough = 40
	if len(file) <= enough {
		return file
	}
	dir, name := path.Split(file)
	return ".../" + path.Join(path.Base(dir), name)
}

// erase moves the cursor up to where the block begins, and clears from there on.
func (b *board) erase(s *strings.Builder) {
	if b.rows > 0 {
		fmt.Fprintf(s, "\x1b[%dA\x1b[J", b.rows)
	}
	b.rows = 0
}

// print writes in one go, so that nothing flickers.
func (b *board) print(s string) {
	_, _ = b.out.WriteString(s) // if nobody reads it, there is still the exit code
}
