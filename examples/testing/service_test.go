package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testwork"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Nearly all of these run in bubbles of testing/synctest: etcd is the real one, and time
// passes when everybody waits, so that minutes take milliseconds.

func TestEachInvoiceIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, time.Second)
		for i := range 20 {
			w.open(fmt.Sprint("r", i))
		}
		for _, name := range []string{"one", "two", "three"} {
			w.start(name)
		}
		time.Sleep(time.Minute)
		for i := range 20 {
			w.paidOnce(fmt.Sprint("r", i))
		}
	})
}

// Etcd has recorded the payment, and the service is never told.
func TestReplyIsLost(t *testing.T) {
	for _, kind := range []claimtest.Kind{claimtest.Acquire, claimtest.Ending} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, time.Second)
				one := w.start("one")
				w.start("two")
				lost := one.host.Inject(claimtest.Fault{On: kind, LoseReply: true})
				for i := range 10 {
					w.open(fmt.Sprint("r", i))
				}
				time.Sleep(time.Minute)
				if lost.Hits() == 0 {
					t.Fatal("no reply was lost: this tests nothing")
				}
				for i := range 10 {
					w.paidOnce(fmt.Sprint("r", i))
				}
			})
		})
	}
}

// Etcd refuses the first attempt to record the payment.
func TestRecordingIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, time.Second)
		one := w.start("one")
		one.host.Inject(claimtest.Fault{On: claimtest.Ending, Code: codes.PermissionDenied})
		w.open("42")
		time.Sleep(time.Hour)
		w.paidOnce("42")
	})
}

// An operator revokes the lease of a process that is charging: it stops at once,
// and whoever comes next begins again.
func TestLeaseIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 30*time.Second) // for one charge
		w.open("42")
		one := w.start("one")
		time.Sleep(7 * time.Second)
		w.start("two")
		w.server.Revoke(t, one.claims.OwnKey("invoice/42"))
		revoked := time.Now()
		time.Sleep(time.Minute)

		charges := w.bank.charges("42")
		if len(charges) != 2 {
			t.Fatalf("charges: %v", charges)
		}
		if late := charges[0].until.Sub(revoked); late > time.Second {
			t.Errorf("it went on charging for %v", late)
		}
		w.paidOnce("42")
	})
}

// A process that is charging is cut off from etcd: nobody tells it anything.
func TestNetworkIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 30*time.Second)
		w.open("42")
		one := w.start("one")
		time.Sleep(10 * time.Second)
		w.start("two")
		one.host.Cut()
		time.Sleep(time.Minute)

		charges := w.bank.charges("42")
		if len(charges) != 2 || charges[0].by != "one" || charges[1].by != "two" {
			t.Fatalf("charges: %v", charges)
		}
		if charges[1].from.Before(charges[0].until) {
			t.Errorf("two began %v before one had stopped", charges[0].until.Sub(charges[1].from))
		}
		w.paidOnce("42")
		one.host.Heal() // what it sent meanwhile arrives now
		time.Sleep(time.Minute)
		w.paidOnce("42")
	})
}

// A process that is charging is told to stop: it gives the invoice back.
func TestServiceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 30*time.Second)
		w.open("42")
		one := w.start("one")
		time.Sleep(10 * time.Second)
		one.stop()
		if charges := w.bank.charges("42"); len(charges) != 1 || charges[0].until.IsZero() {
			t.Fatalf("it stopped in the midst of a charge: %v", charges)
		}
		two := w.start("two") // need not wait for the end of a lease
		time.Sleep(31 * time.Second)
		w.paidOnce("42")
		r, _, err := testwork.Of(two.claims).Record(t.Context(), "invoice/42")
		if err != nil || r.Attempt != 1 || r.Owner != "two" {
			t.Errorf("record: %+v, %v", r, err)
		}
	})
}

// The program that go run starts, on an etcd of its own, in real time.
func TestProgram(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), "", &out); err != nil {
		t.Fatalf("%v:\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "20 invoices, each charged once") {
		t.Errorf("it says:\n%s", &out)
	}
}

const prefix = "/billing/"

// world is an etcd, a bank, and the processes between them.
type world struct {
	t      *testing.T
	server *claimtest.Server
	etcd   *clientv3.Client
	bank   *fakeBank
}

func newWorld(t *testing.T, takes time.Duration) *world {
	t.Helper()
	server := claimtest.Start(t)
	return &world{t: t, server: server, etcd: server.Etcd(t), bank: &fakeBank{takes: takes, paid: make(map[string]string)}}
}

// process is one that does billing, on a machine of its own.
type process struct {
	host   *claimtest.Host
	claims *etcdclaims.Client
	stop   func()
}

func (w *world) start(name string) *process {
	w.t.Helper()
	host := w.server.Host(w.t)
	claims := claimtest.NewClient(w.t, host, etcdclaims.Config{Prefix: prefix + "claims/", Owner: name})
	b := &Billing{
		Works: testwork.Of(claims), Etcd: host.Etcd(w.t), Bank: bankFor{w.bank, name}, Prefix: prefix,
		Every: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx)
	}()
	p := &process{host: host, claims: claims, stop: func() { cancel(); <-done }}
	w.t.Cleanup(func() { host.Heal(); p.stop() })
	return p
}

func (w *world) open(id string) {
	w.t.Helper()
	if _, err := w.etcd.Put(w.t.Context(), prefix+"open/"+id, "100 EUR"); err != nil {
		w.t.Fatal(err)
	}
}

// paidOnce wants the invoice to be paid, with one charge that did not overlap
// with another.
func (w *world) paidOnce(id string) {
	w.t.Helper()
	resp, err := w.etcd.Get(w.t.Context(), prefix+"paid/"+id)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(resp.Kvs) != 1 || resp.Kvs[0].Version != 1 {
		w.t.Errorf("invoice %s: paid is %v", id, resp.Kvs)
	}
	if open, err := w.etcd.Get(w.t.Context(), prefix+"open/"+id); err != nil || open.Count != 0 {
		w.t.Errorf("invoice %s is open yet: %v", id, err)
	}
	charges := w.bank.charges(id)
	for i := range charges {
		if i > 0 && charges[i].from.Before(charges[i-1].until) {
			w.t.Errorf("invoice %s was charged by two at a time: %v", id, charges)
		}
	}
	if n := w.bank.moved(id); n != 1 {
		w.t.Errorf("invoice %s: money was moved %d times", id, n)
	}
}
