package claimtest

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// wires are the connections of a host, and the cuts that stop their bytes.
type wires struct {
	dial func(ctx context.Context, addr string) (net.Conn, error)

	mu     sync.Mutex
	conns  map[*wire]struct{}
	cuts   map[cut]chan struct{} // closed when healed
	killed bool

	out, in, jitter time.Duration // latency of new connections
}

// cut is one direction of the connections of one address, or of all if it is empty.
type cut struct {
	addr string
	in   bool
}

func newWires(dial func(ctx context.Context, addr string) (net.Conn, error)) *wires {
	return &wires{dial: dial, conns: make(map[*wire]struct{}), cuts: make(map[cut]chan struct{})}
}

var errUnplugged = errors.New("claimtest: connection refused: the host was killed")

// connect dials for gRPC. While the direction to addr is cut it hangs.
func (w *wires) connect(ctx context.Context, addr string) (net.Conn, error) {
	for {
		gate, killed := w.gate(addr, false)
		if killed {
			return nil, errUnplugged
		}
		if gate == nil {
			break
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	conn, err := w.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	conn = w.far(conn)
	c := &wire{Conn: conn, w: w, addr: addr, closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.killed {
		_ = conn.Close()
		return nil, errUnplugged
	}
	w.conns[c] = struct{}{}
	return c, nil
}

// gate returns a channel that must be closed before bytes pass, or nil.
func (w *wires) gate(addr string, in bool) (gate <-chan struct{}, killed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.cuts[cut{"", in}]; g != nil {
		return g, w.killed
	}
	if g := w.cuts[cut{addr, in}]; g != nil {
		return g, w.killed
	}
	return nil, w.killed
}

func (w *wires) cut(addr string, in bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := (cut{addr, in}); w.cuts[c] == nil {
		w.cuts[c] = make(chan struct{})
	}
}

func (w *wires) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, gate := range w.cuts {
		close(gate)
		delete(w.cuts, c)
	}
	w.killed = false
}

// breakAll closes all connections.
func (w *wires) breakAll(forGood bool) {
	w.mu.Lock()
	w.killed = w.killed || forGood
	conns := make([]*wire, 0, len(w.conns))
	for c := range w.conns {
		conns = append(conns, c)
	}
	w.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// wire is a connection that can be cut. As with TCP nothing is lost: what was sent
// arrives after the cut is healed.
type wire struct {
	net.Conn
	w      *wires
	addr   string
	once   sync.Once
	closed chan struct{}

	mu      sync.Mutex
	pending []byte // written while the connection was cut
	pumping bool   // a goroutine sends what is pending
}

func (c *wire) pass(in bool) error {
	for {
		gate, _ := c.w.gate(c.addr, in)
		if gate == nil {
			return nil
		}
		select {
		case <-gate:
		case <-c.closed:
			return net.ErrClosed
		}
	}
}

func (c *wire) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if perr := c.pass(true); perr != nil {
		return 0, perr
	}
	return n, err
}

// Write does not block while the connection is cut, as a socket does not block
// before its buffers are full.
func (c *wire) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if gate, _ := c.w.gate(c.addr, false); gate == nil && !c.pumping {
		return c.send(p)
	}
	c.pending = append(c.pending, p...)
	if !c.pumping {
		c.pumping = true
		go c.pump()
	}
	return len(p), nil
}

// pump sends what was written while the connection was cut.
func (c *wire) pump() {
	for {
		err := c.pass(false)
		c.mu.Lock()
		if err != nil || len(c.pending) == 0 {
			c.pumping = false
			c.mu.Unlock()
			return
		}
		p := c.pending
		c.pending = nil
		c.mu.Unlock()
		_, _ = c.send(p) // that it failed is told to the reader
	}
}

// send writes. If that fails it closes the connection, so that reading fails as
// well, even during a cut: gRPC considers a connection usable until its reader
// ends, and would retry on it without a pause.
func (c *wire) send(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

func (c *wire) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.w.mu.Lock()
		delete(c.w.conns, c)
		c.w.mu.Unlock()
	})
	return c.Conn.Close()
}
