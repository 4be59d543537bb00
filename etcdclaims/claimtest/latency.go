package claimtest

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// SetLatency puts the host at a distance from etcd: what it sends takes out, and what it
// receives takes in, each longer at random by up to jitter. As with TCP nothing overtakes,
// and the throughput is not limited. It applies to connections made from now on, so call it
// before clients are created, or call Break after it. Zero values end it.
func (h *Host) SetLatency(out, in, jitter time.Duration) {
	h.wires.mu.Lock()
	defer h.wires.mu.Unlock()
	h.wires.out, h.wires.in, h.wires.jitter = out, in, jitter
}

// far returns a connection over the host's distance.
func (w *wires) far(conn net.Conn) net.Conn {
	w.mu.Lock()
	out, in, jitter := w.out, w.in, w.jitter
	w.mu.Unlock()
	if out+in+jitter <= 0 {
		return conn
	}
	c := &farConn{Conn: conn, closed: make(chan struct{})}
	c.sent, c.received = newTransit(out, jitter), newTransit(in, jitter)
	go c.transmit()
	go c.receive()
	return c
}

// farConn is a connection whose bytes take a while.
type farConn struct {
	net.Conn
	sent, received *transit
	once           sync.Once
	closed         chan struct{}
	rest           []byte // read in part
}

func (c *farConn) Write(p []byte) (int, error) {
	c.sent.add(append([]byte(nil), p...), nil)
	return len(p), nil
}

// transmit passes on what has arrived at the other end.
func (c *farConn) transmit() {
	for {
		chunk, ok := c.sent.next(c.closed)
		if !ok {
			return
		}
		if _, err := c.Conn.Write(chunk.bytes); err != nil {
			_ = c.Conn.Close()
			return
		}
	}
}

// receive sends off what etcd has sent.
func (c *farConn) receive() {
	for {
		p := make([]byte, 32<<10)
		n, err := c.Conn.Read(p)
		c.received.add(p[:n], err)
		if err != nil {
			return
		}
	}
}

func (c *farConn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		chunk, ok := c.received.next(c.closed)
		if !ok {
			return 0, net.ErrClosed
		}
		if c.rest = chunk.bytes; len(c.rest) == 0 && chunk.err != nil {
			return 0, chunk.err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *farConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// chunk is what was sent at once.
type chunk struct {
	bytes []byte
	err   error
	at    time.Time // when it arrives
}

// transit is what is under way in one direction.
type transit struct {
	latency, jitter time.Duration
	more            chan struct{}

	mu     sync.Mutex
	chunks []chunk
	last   time.Time // when the last one arrives
}

func newTransit(latency, jitter time.Duration) *transit {
	return &transit{latency: latency, jitter: jitter, more: make(chan struct{}, 1)}
}

func (t *transit) add(p []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := time.Now().Add(t.latency + rand.N(t.jitter+1))
	if at.Before(t.last) {
		at = t.last
	}
	t.last = at
	t.chunks = append(t.chunks, chunk{p, err, at})
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// next waits for what arrives next. It returns false after the end of closed.
func (t *transit) next(closed <-chan struct{}) (c chunk, ok bool) {
	for {
		t.mu.Lock()
		if ok = len(t.chunks) > 0; ok {
			c, t.chunks = t.chunks[0], t.chunks[1:]
		}
		t.mu.Unlock()
		if ok {
			break
		}
		select {
		case <-t.more:
		case <-closed:
			return c, false
		}
	}
	select {
	case <-time.After(time.Until(c.at)):
		return c, true
	case <-closed:
		return c, false
	}
}
