// Package demoproc runs the worker processes of the examples: the program
// itself, started again. A worker gets its job as an argument, lines of JSON on
// its standard input as orders, and writes lines of JSON as events.
package demoproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// command is the argument that makes the program a worker.
const command = "worker"

// Job decodes the job of this process into j and returns true, if the process is a worker.
func Job(j any) (bool, error) {
	if len(os.Args) != 3 || os.Args[1] != command {
		return false, nil
	}
	return true, json.Unmarshal([]byte(os.Args[2]), j)
}

// ErrNoOrders is the cause with which the context of Orders ends when the parent
// sends no more orders, or is gone.
var ErrNoOrders = errors.New("no more orders from the parent")

// Orders returns the orders that the parent sends to this worker, and a context
// that ends with ErrNoOrders after the last one.
func Orders[O any](ctx context.Context) (context.Context, <-chan O) {
	ctx, cancel := context.WithCancelCause(ctx)
	orders := make(chan O)
	go func() {
		var o O
		for in := json.NewDecoder(os.Stdin); in.Decode(&o) == nil; {
			select {
			case orders <- o:
			case <-ctx.Done():
			}
		}
		cancel(ErrNoOrders)
	}()
	return ctx, orders
}

// Teller returns a function that sends an event to the parent. It can be called
// from any goroutine.
func Teller[E any]() func(E) {
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	return func(e E) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(e) // without a parent the worker ends soon
	}
}

// Process is a worker, as its parent sees it. Pause and Resume do what their names
// say.
type Process struct {
	*testetcd.Child
	Name   string
	in     io.WriteCloser
	ended  chan struct{} // closed when it has ended and all its events were handled
	killed bool
}

// Order sends an order to the process.
func (p *Process) Order(v any) error {
	if err := json.NewEncoder(p.in).Encode(v); err != nil {
		return fmt.Errorf("order to %s: %w", p.Name, err)
	}
	return nil
}

// Kill kills the process without warning, and waits for its end.
func (p *Process) Kill() {
	p.killed = true
	p.Child.Kill()
	<-p.ended
}

// Ended reports whether the process has ended; then err says how. A process that
// was killed has ended well.
func (p *Process) Ended() (ended bool, err error) {
	select {
	case <-p.ended:
	default:
		return false, nil
	}
	if err := p.Err(); err != nil && !p.killed {
		return true, fmt.Errorf("%s ended: %w", p.Name, err)
	}
	return true, nil
}

// Group is the workers of a parent, which belongs to one goroutine.
type Group[E any] struct {
	Workers []*Process
	// Handle handles the events of all workers, one at a time.
	Handle func(E)

	mu sync.Mutex
}

// Start starts a worker. Its standard error is the parent's.
func (g *Group[E]) Start(name string, job any) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, command, string(arg))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A StdoutPipe would be closed as the process ends, with events unread.
	events, out := io.Pipe()
	cmd.Stdout = out
	child, err := testetcd.StartChild(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{Child: child, Name: name, in: in, ended: make(chan struct{})}
	g.Workers = append(g.Workers, p)
	go func() {
		<-child.Dead()
		_ = out.Close()
	}()
	go func() {
		defer close(p.ended)
		lines := json.NewDecoder(events)
		for {
			var e E
			if err := lines.Decode(&e); err != nil {
				_ = events.CloseWithError(err) // what ends in the middle of a line was killed
				return
			}
			g.mu.Lock()
			g.Handle(e)
			g.mu.Unlock()
		}
	}()
	return p, nil
}

// Order sends an order to all workers.
func (g *Group[E]) Order(v any) error {
	var errs []error
	for _, w := range g.Workers {
		errs = append(errs, w.Order(v))
	}
	return errors.Join(errs...)
}

// CloseOrders tells all workers that there are no more orders.
func (g *Group[E]) CloseOrders() {
	for _, w := range g.Workers {
		_ = w.in.Close()
	}
}

// Until waits for a condition, which is called again and again and never while an
// event is handled. It returns an error if a worker fails or ctx ends first.
func (g *Group[E]) Until(ctx context.Context, what string, met func() bool) error {
	for {
		g.mu.Lock()
		var failed error
		for _, w := range g.Workers {
			_, err := w.Ended()
			failed = errors.Join(failed, err)
		}
		ok := met()
		g.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case ok:
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Finished reports whether all workers have ended.
func (g *Group[E]) Finished() bool {
	for _, w := range g.Workers {
		if ended, _ := w.Ended(); !ended {
			return false
		}
	}
	return true
}

// Kill kills the workers that are left.
func (g *Group[E]) Kill() {
	for _, w := range g.Workers {
		w.Kill()
	}
}
