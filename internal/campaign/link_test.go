package main

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// silence is how long a test waits to see that nothing comes.
const silence = 100 * time.Millisecond

// echo serves connections by sending back what comes.
func echo(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func testLink(t *testing.T, target string) *link {
	t.Helper()
	l, err := openLink(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

func dial(t *testing.T, l *link) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", l.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// say sends a byte.
func say(t *testing.T, conn net.Conn, b byte) {
	t.Helper()
	if _, err := conn.Write([]byte{b}); err != nil {
		t.Fatal(err)
	}
}

// hear expects a byte within a time; 0 stands for none.
func hear(t *testing.T, conn net.Conn, want byte) {
	t.Helper()
	patience := 10 * time.Second
	if want == 0 {
		patience = silence
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	n, err := conn.Read(b[:])
	if want == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	if n != 1 || b[0] != want {
		t.Fatalf("heard %d byte %q, %v; want %q", n, b[0], err, want)
	}
}

func TestLinkHolds(t *testing.T) {
	for name, ways := range map[string]func(*link) []*sync.RWMutex{
		"cut":  func(l *link) []*sync.RWMutex { return []*sync.RWMutex{&l.up, &l.down} },
		"up":   func(l *link) []*sync.RWMutex { return []*sync.RWMutex{&l.up} },
		"down": func(l *link) []*sync.RWMutex { return []*sync.RWMutex{&l.down} },
	} {
		t.Run(name, func(t *testing.T) {
			l := testLink(t, echo(t))
			conn := dial(t, l)
			say(t, conn, 'a')
			hear(t, conn, 'a')
			l.hold(ways(l)...)
			say(t, conn, 'b')
			hear(t, conn, 0)
			fresh := dial(t, l) // is taken, and is as silent
			say(t, fresh, 'c')
			hear(t, fresh, 0)
			l.heal()
			hear(t, conn, 'b')
			hear(t, fresh, 'c')
			say(t, conn, 'd')
			hear(t, conn, 'd')
		})
	}
}

// TestLinkHoldsOneWay looks at the far side: what is not held arrives there.
func TestLinkHoldsOneWay(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	l := testLink(t, listener.Addr().String())
	near := dial(t, l)
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	l.hold(&l.down)
	say(t, near, 'a')
	hear(t, far, 'a')
	say(t, far, 'b')
	hear(t, near, 0)
	l.heal()
	hear(t, near, 'b')
	l.hold(&l.up)
	say(t, near, 'c')
	hear(t, far, 0)
	say(t, far, 'd')
	hear(t, near, 'd')
	// That a side has closed is held back as well.
	_ = near.Close()
	hear(t, far, 0)
	l.heal()
	hear(t, far, 'c')
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the near side has closed: %v", err)
	}
}

func TestLinkBreaks(t *testing.T) {
	l := testLink(t, echo(t))
	conn := dial(t, l)
	say(t, conn, 'a')
	hear(t, conn, 'a')
	l.sever()
	gone := func(conn net.Conn) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d bytes, %v from a broken link", n, err)
		}
	}
	gone(conn)
	if refused, err := net.Dial("tcp", l.addr()); err == nil {
		defer func() { _ = refused.Close() }()
		gone(refused)
	}
	l.heal()
	conn = dial(t, l)
	say(t, conn, 'b')
	hear(t, conn, 'b')
	// One that is held can be broken and closed, too.
	l.hold(&l.up, &l.down)
	say(t, conn, 'c')
	l.sever()
	gone(conn)
}

func TestLinkWithoutTarget(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	conn, err := net.Dial("tcp", testLink(t, addr).addr())
	if err != nil {
		return // it was reset before it was known to be made
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no end of a connection to nobody: %v", err)
	}
}
