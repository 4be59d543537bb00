package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
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

	mu       sync.Mutex
	held     []*sync.RWMutex
	whole    context.Context // ends when the link breaks
	breakOff context.CancelFunc
}

// openLink returns a link to the address that listens on a port of its own,
// which it keeps until it is closed.
func openLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{target: target, listener: listener}
	l.whole, l.breakOff = context.WithCancel(context.Background())
	l.running.Go(l.accept)
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

// hold stalls what flows up, down, or both, until the link is healed: connections stay, new
// ones are taken, and nothing arrives. A link that is held must not be held again.
func (l *link) hold(ways ...*sync.RWMutex) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, way := range ways {
		way.Lock()
	}
	l.held = ways
}

// sever breaks all connections, and refuses new ones until the link is healed.
// They are reset as soon as they are made: a port that is given up could be
// another's when it is wanted back.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breakOff()
}

// heal lets everything flow again, first what was held back.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole.Err() != nil {
		l.whole, l.breakOff = context.WithCancel(context.Background())
	}
	for _, way := range l.held {
		way.Unlock()
	}
	l.held = nil
}

func (l *link) close() {
	_ = l.listener.Close()
	l.heal()
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
		l.running.Go(func() { l.carry(conn) })
	}
}

// carry moves bytes both ways until one side ends, or the link breaks.
func (l *link) carry(near net.Conn) {
	l.mu.Lock()
	whole := l.whole
	l.mu.Unlock()
	defer context.AfterFunc(whole, func() { reset(near) })()
	pass(&l.up)
	dialer := net.Dialer{Timeout: 2 * time.Second}
	far, err := dialer.DialContext(whole, "tcp", l.target)
	if err != nil {
		reset(near)
		return
	}
	defer context.AfterFunc(whole, func() { reset(far) })()
	var back sync.WaitGroup
	back.Go(func() { carryOneWay(near, far, &l.down) })
	carryOneWay(far, near, &l.up)
	back.Wait()
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
type network [workerCount][]*link

// open adds links to the members.
func (n *network) open(members []string) error {
	for w := range n {
		for _, url := range members {
			l, err := openLink(strings.TrimPrefix(url, "http://"))
			if err != nil {
				return err
			}
			n[w] = append(n[w], l)
		}
	}
	return nil
}

func (n *network) close() {
	for _, l := range slices.Concat(n[:]...) {
		l.close()
	}
}
