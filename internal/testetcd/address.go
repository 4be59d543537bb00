package testetcd

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
)

var addrs struct {
	sync.Mutex
	host string
	used map[string]bool
}

// freeAddrs returns n addresses to listen on. None is ever given out twice, so
// that a stopped server finds its own address free when it restarts.
func freeAddrs(n int) ([]string, error) {
	addrs.Lock()
	defer addrs.Unlock()
	if addrs.host == "" {
		addrs.host = loopback()
		addrs.used = make(map[string]bool)
	}
	var free []string
	for tries := 0; len(free) < n; tries++ {
		if tries > 1000+10*n {
			return nil, fmt.Errorf("testetcd: no free ports on %s", addrs.host)
		}
		// Not any port that the system has free: to be told one it has to be
		// bound for a moment, and that may be one of a stopped server which
		// restarts just then.
		addr := net.JoinHostPort(addrs.host, strconv.Itoa(10_000+rand.IntN(50_000)))
		if addrs.used[addr] {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue // somebody else's
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("testetcd: %w", err)
		}
		addrs.used[addr] = true
		free = append(free, addr)
	}
	return free, nil
}

// loopback returns a loopback address that no other process uses, as far as
// the system has more than one. Test binaries of several packages run at the
// same time, and a port that looks free to one may look free to another, too.
// Nor can an outgoing connection take the port of a server which is stopped
// for a moment: those leave from 127.0.0.1.
func loopback() string {
	if runtime.GOOS == "linux" { // the whole of 127/8 is there
		pid := os.Getpid()
		host := fmt.Sprintf("127.%d.%d.%d", 64+pid>>16&0x7f, pid>>8&0xff, pid&0xff)
		if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil {
			_ = l.Close()
			return host
		}
	}
	return "127.0.0.1"
}
