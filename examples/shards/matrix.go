package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/group"
)

const columns = 64

// show keeps a matrix of the partitions' owners on the terminal, until stop is called.
// Without a terminal it shows nothing.
func show(ctx context.Context, v *group.View) (stop func()) {
	if info, err := os.Stdout.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for a := range v.Watch(ctx) {
			fmt.Print(matrix(a))
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-done }
}

// matrix draws a letter for the owner of each partition: A for worker-01, and so on.
func matrix(a group.Assignment) string {
	var b strings.Builder
	for partition, o := range a.Owners {
		if partition%columns == 0 {
			b.WriteString("\n  ")
		}
		var n int
		if _, err := fmt.Sscanf(o.Member, "worker-%d", &n); err != nil {
			b.WriteByte('.')
			continue
		}
		fmt.Fprintf(&b, "\x1b[%dm%c\x1b[0m", 31+n%6, 'A'+n-1)
	}
	b.WriteString("\n")
	return b.String()
}
