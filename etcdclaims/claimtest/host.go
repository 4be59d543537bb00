package claimtest

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A Host is the machine that some clients run on: their network to etcd and their
// clocks. Faults of one host do not affect another host. Its methods are safe for
// concurrent use.
type Host struct {
	backend backend
	wires   *wires
	late    sync.WaitGroup // held requests
	closed  chan struct{}

	mu       sync.Mutex
	faults   []*Injection // that may yet happen
	injected []*Injection // since RemoveFaults
	traffic  map[Kind]*traffic

	began time.Time
	slept atomic.Int64
	step  atomic.Int64
}

func newHost(tb testing.TB, b backend) *Host {
	tb.Helper()
	h := &Host{
		backend: b, wires: newWires(b.dial), closed: make(chan struct{}),
		traffic: make(map[Kind]*traffic), began: time.Now(),
	}
	tb.Cleanup(func() {
		close(h.closed)
		h.late.Wait()
	})
	return h
}

// Etcd implements [Etcd]: it returns a new client on this host, which is closed
// when the test ends.
func (h *Host) Etcd(tb testing.TB) *clientv3.Client {
	tb.Helper()
	c := h.backend.client(tb, clientv3.Config{DialOptions: h.dialOptions()})
	tb.Cleanup(clock.Attach(c, h.clock()))
	tb.Cleanup(h.restore)
	return c
}

func (h *Host) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(h.wires.connect),
		grpc.WithChainUnaryInterceptor(h.unary),
		grpc.WithChainStreamInterceptor(h.stream),
	}
}

// restore heals the network and removes all faults, so that clients can close when
// the test ends.
func (h *Host) restore() {
	h.RemoveFaults()
	h.Heal()
}

// Cut stops the network between the host and etcd in both directions until Heal.
// Connections stay open and nothing is lost: requests that were sent meanwhile arrive
// after Heal, unless their calls were cancelled.
func (h *Host) Cut() {
	h.wires.cut("", true)
	h.wires.cut("", false)
}

// CutReplies stops everything that etcd sends to the host until Heal. Requests
// still arrive.
func (h *Host) CutReplies() { h.wires.cut("", true) }

// Hang stops the network to and from one endpoint until Heal, as if that member
// were stopped.
func (h *Host) Hang(endpoint string) {
	addr := endpoint[strings.LastIndex(endpoint, "/")+1:]
	h.wires.cut(addr, true)
	h.wires.cut(addr, false)
}

// Break closes all connections of the host. gRPC makes new ones.
func (h *Host) Break() { h.wires.breakAll(false) }

// Kill closes all connections of the host and refuses new ones. To etcd, the
// processes of the host have died. Their goroutines keep running, and find that
// etcd cannot be reached.
func (h *Host) Kill() { h.wires.breakAll(true) }

// Heal ends what Cut, CutReplies, Hang and Kill began.
func (h *Host) Heal() { h.wires.heal() }

// Suspend simulates that the machine slept for d and has just woken up. The wall
// clock and the boot clock of its clients jump by d. Their monotonic time does not,
// as in Go (golang/go#24595). Leases in etcd have not aged, because the call itself
// takes no time.
func (h *Host) Suspend(d time.Duration) {
	h.slept.Add(int64(d))
	h.step.Add(int64(d))
}

// StepClock moves the wall clock of the machine by d, which may be negative.
func (h *Host) StepClock(d time.Duration) { h.step.Add(int64(d)) }

func (h *Host) clock() clock.Clock {
	return clock.Clock{
		Boot: func() time.Duration { return time.Since(h.began) + time.Duration(h.slept.Load()) },
		Wall: func() time.Time { return time.Now().Add(time.Duration(h.step.Load())) },
	}
}
