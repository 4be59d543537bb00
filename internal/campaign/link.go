package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A link is one worker's way to one member: a TCP proxy whose bytes can be held
// back in either direction, and which can be broken.
type link struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup
	up, down sync.RWMutex // locked while what flows towards the member, or back, is held

	mu     sync.Mutex
	held   []*sync.RWMutex
	conns  map[net.Conn]struct{} // both ends of each connection
	broken bool
}

// openLink returns a link to the address that listens on a port of its own,
// which it keeps until it is closed.
func openLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{target: target, listener: listener, conns: map[net.Conn]struct{}{}}
	l.running.Go(l.accept)
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

// hold stalls what flows up, down, or both, until the link is healed: connections stay, new
// ones are taken, and nothing arrives. A link that is held must not be held again.
func (l *link) hold(up, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if up {
		l.stall(&l.up)
	}
	if down {
		l.stall(&l.down)
	}
}

func (l *link) stall(way *sync.RWMutex) {
	way.Lock()
	l.held = append(l.held, way)
}

// sever breaks all connections, and refuses new ones until the link is healed.
// They are reset as soon as they are made: a port that is given up could be
// another's when it is wanted back.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for conn := range l.conns {
		reset(conn)
	}
}

// heal lets everything flow again, first what was held back.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
	l.release()
}

// release ends hold.
func (l *link) release() {
	for _, way := range l.held {
		way.Unlock()
	}
	l.held = nil
}

func (l *link) close() {
	_ = l.listener.Close()
	l.sever()
	l.mu.Lock()
	l.release() // and it stays broken
	l.mu.Unlock()
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
		l.running.Go(func() { l.carry(conn) })
	}
}

// carry moves bytes both ways until one side ends, or the link is severed.
func (l *link) carry(near net.Conn) {
	defer l.drop(near)
	if !l.keep(near) {
		return
	}
	pass(&l.up)
	far, err := net.DialTimeout("tcp", l.target, 2*time.Second)
	if err != nil {
		reset(near)
		return
	}
	defer l.drop(far)
	if !l.keep(far) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { carryOneWay(near, far, &l.down) })
	carryOneWay(far, near, &l.up)
	back.Wait()
}

// keep takes a connection in, or resets it because the link is broken.
func (l *link) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		reset(conn)
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *link) drop(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
	_ = conn.Close()
}

// reset closes a connection so that the other side is told at once.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// pass waits until a way is not held.
func pass(way *sync.RWMutex) {
	way.RLock()
	defer way.RUnlock()
}

// carryOneWay moves bytes until one side ends. The end of a connection is held back as bytes are:
// the other side does not notice it while the way is held.
func carryOneWay(to, from net.Conn, way *sync.RWMutex) {
	_, _ = io.Copy(holdable{to, way}, from)
	pass(way)
	_, _ = to.Close(), from.Close()
}

// holdable is a connection whose bytes wait while their way is held.
type holdable struct {
	net.Conn
	way *sync.RWMutex
}

func (h holdable) Write(b []byte) (int, error) {
	pass(h.way)
	return h.Conn.Write(b)
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
