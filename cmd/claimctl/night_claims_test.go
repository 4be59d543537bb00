//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ofClaims are failures of the programs that claim keys.
var ofClaims = map[string]incident{
	"a holder is killed": {
		heading: "A key is stuck",
		waits:   true,
		stage:   func(n *night) { n.alone(); n.holds(); n.run.signal(syscall.SIGKILL) },
		see:     "explain orders/42", words: []string{"overdue"},
		over: "run --wait 1m orders/42 -- true",
	},
	"a holder is stopped": {
		heading: "A key is stuck",
		waits:   true,
		stage:   func(n *night) { n.alone(); n.holds(); n.run.signal(syscall.SIGSTOP) },
		see:     "explain orders/42", words: []string{"overdue"},
		over: "run --wait 1m orders/42 -- true",
	},
	"a holder hangs in its handler": {
		heading: "A key is stuck",
		stage:   func(n *night) { n.alone(); n.holds() },
		see:     "explain orders/42", words: []string{"api-7", "ago"},
		repair: []string{" release --fence "},
		over:   "run --wait 1m orders/42 -- true",
	},
	"a key never expires": {
		heading: "A key is stuck",
		stage: func(n *night) {
			n.alone()
			_, err := n.etcd.Put(n.Context(), n.prefix+"own/orders/42", `{"v":1,"owner":"script"}`)
			n.noErr(err)
		},
		see: "doctor", words: []string{"without a lease, so that they never expire: orders/42", " explain orders/42"},
		repair: []string{" explain orders/42", " release --fence "},
		over:   "run orders/42 -- true",
	},
	"a newer version holds a key": {
		stage: func(n *night) {
			n.alone()
			lease, err := n.etcd.Grant(n.Context(), 60)
			n.noErr(err)
			_, err = n.etcd.Put(n.Context(), n.prefix+"own/orders/42", `{"v":99,"claim":{"id":1},"owner":"api-9"}`, clientv3.WithLease(lease.ID))
			n.noErr(err)
			n.begun = func() { _, _ = n.etcd.Revoke(n.Context(), lease.ID) }
		},
		see: "doctor", words: []string{"written by a newer version: orders/42", "with a claimctl of that version"},
		never:  []string{" release ", " del ", " forget "},
		repair: []string{" explain orders/42"},
		beyond: func(n *night) {
			if r := n.ctl("run", "--wait", "1s", "orders/42", "--", "true"); r.code != exitTimeout {
				n.Errorf("a key of a newer version is taken: %+v", r)
			}
			n.begun() // the newer program ends
		},
		over: "run --wait 1m orders/42 -- true",
	},
	"a leader flaps": {
		heading: "A leader flaps",
		waits:   true,
		stage: func(n *night) {
			n.alone()
			n.run = n.start(program(n.T), "elect", "--owner", "mailer-1", "leader/mailer", "--", "sleep", "120")
			for range 5 { // as if the process did not reach etcd for a TTL
				n.loses("leader/mailer")
			}
		},
		see: "doctor", words: []string{"again and again: leader/mailer (", " terms a minute, mailer-1)"},
		repair: []string{" history --limit 20 leader/mailer"}, // then the process is mended, and stays leader
		over:   "doctor", gone: "again and again",
	},
	"a key flaps": {
		heading: "A leader flaps",
		waits:   true,
		stage: func(n *night) {
			n.alone()
			for i := range 6 {
				c := n.client(fmt.Sprint("api-", 7+i%2))
				n.claim(c, "orders/42")
				n.loses("orders/42")
			}
		},
		see: "doctor", words: []string{"again and again: orders/42 (", " terms a minute, api-7, api-8)"},
		repair: []string{" history --limit 20 orders/42"},
		over:   "doctor", gone: "again and again",
	},
	"one client is cut off": {
		heading: "A key is stuck",
		waits:   true,
		stage: func(n *night) {
			n.alone()
			n.claim(n.client("api-8"), "orders/43")
			direct, network := n.flags, n.links()
			n.flags = append([]string{"--endpoints", network.Addr().String()}, n.flags[2:]...)
			n.run = n.start(program(n.T), "elect", "--owner", "api-7", "--ttl", "10s", "orders/42", "--",
				"sh", "-c", `echo "$CLAIM_FENCE" >> `+n.beats()+`; trap "" TERM; while :; do date +%s%N >> `+n.beats()+`; sleep 0.05; done`)
			n.flags = direct
			appears(n.T, n.beats())
			network.vanish.Lock()
			n.begun = func() { network.vanish.Unlock(); n.begun = nil }
		},
		see: "doctor", words: []string{"the renewals of 1 of the 2 that were read are overdue: api-7", " ls --held-by api-7"},
		cause: func(n *night, _ string) {
			n.finds(n.ok("explain", "orders/42"), "api-7", "overdue")
			n.finds(n.ok("explain", "orders/43"), "api-8", "of a lease of ")
			eventually(n.T, "the claim ends", func() bool { return strings.Contains(n.ok("explain", "orders/42"), "State:     free") })
			lines := strings.Fields(appears(n.T, n.beats()))
			var last int64
			_, err := fmt.Sscan(lines[len(lines)-1], &last)
			n.noErr(err)
			if time.Since(time.Unix(0, last)) < time.Second/4 {
				n.Errorf("the command was alive when the key was free")
			}
		},
		beyond: func(n *night) {
			n.begun()
			n.noErr(os.Remove(n.beats()))
			appears(n.T, n.beats()) // it has the key again
		},
		over: "doctor",
	},
}

// holds has a program hold a key.
func (n *night) holds() {
	file := filepath.Join(n.dir(), "begun")
	n.run = n.start(program(n.T), "run", "--owner", "api-7", "--ttl", "15s", "orders/42", "--",
		"sh", "-c", "echo > "+file+"; exec sleep 120")
	appears(n.T, file)
}

// loses ends the lease of a key's holder in etcd.
func (n *night) loses(key string) {
	n.Helper()
	observer := n.client("observer")
	eventually(n.T, key+" is held", func() bool {
		i, err := observer.Lookup(n.Context(), key)
		if err != nil || !i.Held {
			return false
		}
		_, err = n.etcd.Revoke(n.Context(), i.Lease)
		return err == nil
	})
}

// beats is a file to which a command writes while it runs.
func (n *night) beats() string { return filepath.Join(n.dir(), "beats") }

// network is one between a program and etcd.
type network struct {
	net.Listener
	vanish sync.RWMutex // locked while nothing arrives
}

// links begins a network to etcd.
func (n *night) links() *network {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	n.noErr(err)
	w := &network{Listener: l}
	to := strings.TrimPrefix(n.flags[1], "http://")
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				running.Go(func() { w.carries(way[0], way[1]) })
			}
		}
	})
	n.Cleanup(func() { _ = l.Close(); running.Wait() }) // the connections end with the program
	return w
}

func (w *network) carries(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	for some := make([]byte, 32<<10); ; {
		size, err := from.Read(some)
		w.vanish.RLock()
		_, failed := io.Copy(to, bytes.NewReader(some[:size]))
		w.vanish.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}
