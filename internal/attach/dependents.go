package attach

import (
	"context"
	"sync"
)

// Dependents are what is built on a client and has not ended yet. No other mutex is taken
// while its own is held. The zero value is ready for use.
type Dependents struct {
	mu     sync.Mutex
	ends   []*dependent // the newest is the last
	closed bool         // all have been ended; what is added now ends at once
}

type dependent struct{ end func(ctx context.Context) }

// Add lists what End ends, until forget is called. After End it is ended at once, with a context
// that has ended.
func (d *Dependents) Add(end func(ctx context.Context)) (forget func()) {
	x := &dependent{end}
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.ends = append(d.ends, x)
	}
	d.mu.Unlock()
	if closed {
		over, cancel := context.WithCancel(context.Background())
		cancel() // Close has no time left for it
		end(over)
	}
	return func() { d.remove(x) }
}

func (d *Dependents) remove(x *dependent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, other := range d.ends {
		if other == x {
			d.ends = append(d.ends[:i:i], d.ends[i+1:]...)
			return
		}
	}
}

// newest takes the newest dependent off the list. If the list is empty, newest closes it and
// returns nil.
func (d *Dependents) newest() *dependent {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.ends) - 1
	if last < 0 {
		d.closed = true
		return nil
	}
	x := d.ends[last]
	d.ends = d.ends[:last:last]
	return x
}

// End ends all of them, the newest first: what was made later may use what was made before,
// and not the other way round. One by one may take long without etcd: once ctx has ended, none
// waits for another.
func (d *Dependents) End(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for x := d.newest(); x != nil; x = d.newest() {
		ended := make(chan struct{})
		wg.Go(func() {
			defer close(ended)
			x.end(ctx)
		})
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
}
