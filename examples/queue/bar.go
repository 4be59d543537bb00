package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
)

// bar shows progress: on a terminal by a line below what is logged, elsewhere by a line
// of the log for each quarter. The log is written through it.
type bar struct {
	out      io.Writer
	terminal bool

	mu   sync.Mutex
	line string // shown on the terminal
	done int
}

func newBar(out *os.File) *bar {
	info, err := out.Stat()
	return &bar{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

const clearLine = "\r\x1b[K"

// Write writes what is logged above the bar.
func (b *bar) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.line == "" {
		return b.out.Write(text)
	}
	if _, err := io.WriteString(b.out, clearLine+string(text)+b.line); err != nil {
		return 0, err
	}
	return len(text), nil
}

// set shows that done items of total have ended.
func (b *bar) set(done, total int) {
	b.mu.Lock()
	before := b.done
	b.done = done
	if b.terminal && done != before {
		const width = 40
		full := width * done / total
		b.line = fmt.Sprintf("[%s%s] %d/%d", strings.Repeat("#", full), strings.Repeat(".", width-full), done, total)
		if done == total {
			b.line += "\n"
		}
		_, _ = io.WriteString(b.out, clearLine+b.line) // the log reports a terminal that is gone
		if done == total {
			b.line = ""
		}
	}
	b.mu.Unlock() // before the log calls Write
	if !b.terminal && 4*done/total > 4*before/total {
		log.Printf("%d of %d items are done", done, total)
	}
}
