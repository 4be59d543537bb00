package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// A link is one worker's way to one member: a TCP proxy whose bytes can be held
// back in either direction, and which can be broken.
type link struct {
	target   string
	listener net.Listener
	up, down gate // towards the member, and back
	running  sync.WaitGroup

	mu     sync.Mutex
	pairs  map[*pair]struct{}
	broken bool
}

// openLink returns a link to the address that listens on a port of its own,
// which it keeps until it is closed.
func openLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{target: target, listener: listener, pairs: map[*pair]struct{}{}}
	l.up.lift()
	l.down.lift()
	l.running.Go(l.accept)
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

// hold stalls what flows up, down, or both: connections stay, new ones are
// taken, and nothing arrives.
func (l *link) hold(up, down bool) {
	if up {
		l.up.shut()
	}
	if down {
		l.down.shut()
	}
}

// sever breaks all connections, and refuses new ones until the link is healed.
// They are reset as soon as they are made: a port that is given up could be
// another's when it is wanted back.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for p := range l.pairs {
		p.end(true)
	}
}

// heal lets everything flow again, first what was held back.
func (l *link) heal() {
	l.mu.Lock()
	l.broken = false
	l.mu.Unlock()
	l.up.lift()
	l.down.lift()
}

func (l *link) close() {
	_ = l.listener.Close()
	l.sever()
	l.running.Wait()
}

func (l *link) accept() {
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of files, say: that may pass
			continue
		}
		p := &pair{near: conn, done: make(chan struct{})}
		if !l.add(p) {
			continue
		}
		l.running.Go(func() {
			l.carry(p)
			l.mu.Lock()
			delete(l.pairs, p)
			l.mu.Unlock()
		})
	}
}

// add takes a connection in, or ends it because the link is broken.
func (l *link) add(p *pair) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		p.end(true)
		return false
	}
	l.pairs[p] = struct{}{}
	return true
}

// carry moves bytes both ways until one side ends, or the link is severed.
func (l *link) carry(p *pair) {
	defer p.end(false)
	if !l.up.wait(p.done) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	far, err := new(net.Dialer).DialContext(ctx, "tcp", l.target)
	cancel()
	if err != nil {
		p.end(true)
		return
	}
	if !p.join(far) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { p.copy(p.near, p.far, &l.down) })
	p.copy(p.far, p.near, &l.up)
	back.Wait()
}

// A pair is a connection and its continuation.
type pair struct {
	near net.Conn
	done chan struct{} // closed at its end

	mu  sync.Mutex
	far net.Conn
}

// join adds the other half, unless the pair has ended meanwhile.
func (p *pair) join(far net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		_ = far.Close()
		return false
	default:
		p.far = far
		return true
	}
}

func (p *pair) end(reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return
	default:
		close(p.done)
	}
	for _, conn := range []net.Conn{p.near, p.far} {
		if conn == nil {
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // the other side is told at once
		}
		_ = conn.Close()
	}
}

// copy moves bytes one way. That a side has closed passes the gate as bytes do:
// who is cut off does not learn of it.
func (p *pair) copy(dst, src net.Conn, g *gate) {
	defer p.end(false)
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if !g.wait(p.done) {
			return
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// A gate is what bytes of one direction have to pass. It is shut until it is
// lifted.
type gate struct {
	mu   sync.Mutex
	open bool
	ch   chan struct{} // closed when it is lifted
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = false
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}

// wait returns true when the gate is open, and false when done is closed first.
func (g *gate) wait(done <-chan struct{}) bool {
	for {
		g.mu.Lock()
		if g.open {
			g.mu.Unlock()
			return true
		}
		if g.ch == nil {
			g.ch = make(chan struct{})
		}
		lifted := g.ch
		g.mu.Unlock()
		select {
		case <-lifted:
		case <-done:
			return false
		}
	}
}

// A network is the links of all workers to all members, kept over the workers'
// lives.
type network [][]*link

func openNetwork(workers int, members []string) (network, error) {
	n := make(network, workers)
	for w := range n {
		for _, member := range members {
			l, err := openLink(member)
			if err != nil {
				n.close()
				return nil, err
			}
			n[w] = append(n[w], l)
		}
	}
	return n, nil
}

// endpoints are what a worker knows of the members.
func (n network) endpoints(worker int) []string {
	var urls []string
	for _, l := range n[worker] {
		urls = append(urls, "http://"+l.addr())
	}
	return urls
}

func (n network) close() {
	for _, links := range n {
		for _, l := range links {
			l.close()
		}
	}
}
