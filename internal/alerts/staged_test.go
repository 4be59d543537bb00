package alerts

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/telemetry"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// incidents are the failures for which the alerts exist, of clients of a real etcd,
// all at the same time.
type incidents struct {
	*testing.T
	server  *claimtest.Server
	tel     *telemetry.Telemetry
	metrics http.Handler
	url     string       // of the metrics
	scrapes atomic.Int64 // that are over
	heal    func()       // brings etcd back to the client that was cut off
}

// newIncidents serves the metrics of clients in order; begin makes the incidents.
func newIncidents(t *testing.T) *incidents {
	t.Helper()
	tel, metrics, err := newTelemetry()
	check(t, err)
	i := &incidents{T: t, server: claimtest.Start(t), tel: tel, metrics: metrics}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metrics.ServeHTTP(w, r)
		i.scrapes.Add(1)
	}))
	i.url = server.URL
	t.Cleanup(func() {
		server.Close()
		check(t, tel.Close())
	})
	return i
}

// begin makes the incidents, once somebody reads the metrics. They last until the test
// ends.
func (i *incidents) begin() {
	i.seen(i.Context())
	i.lateRenewals()
	i.deafHandler()
	i.staleWrites()
	i.schedule("failing", i.client(i.server.Host(i.T), nil), func(context.Context, sched.Tick) error { return errors.New("staged") })
	i.stuckQueue()
	i.pausedQueue()
	i.longWait()
	i.freePartitions()
	i.flappingOwner()
	i.deadLetters()
	i.lostWork()
	i.cutOff()
}

// seen waits until Prometheus has scraped a series that contains these, or what there is now.
// Of two scrapes the first may have begun before.
func (i *incidents) seen(ctx context.Context, parts ...string) {
	for ; ctx.Err() == nil && !i.serves(parts); time.Sleep(20 * time.Millisecond) {
	}
	for enough := i.scrapes.Load() + 2; i.scrapes.Load() < enough && ctx.Err() == nil; {
		time.Sleep(20 * time.Millisecond)
	}
}

func (i *incidents) serves(parts []string) bool {
	w := httptest.NewRecorder()
	i.metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for series := range strings.Lines(w.Body.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(series, part) }) {
			return true
		}
	}
	return false
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (i *incidents) client(host *claimtest.Host, change func(*etcdclaims.Config)) *etcdclaims.Client {
	cfg := etcdclaims.Config{TTL: etcdclaims.MinTTL, Drain: 100 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	i.tel.Instrument(&cfg)
	return claimtest.NewClient(i.T, host, cfg)
}

// until runs f in the background until the test ends.
func (i *incidents) until(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	i.Cleanup(func() {
		cancel()
		<-done
	})
}

// lateRenewals loses two requests of each renewal, and delays its verification: for
// RenewalMarginLow.
func (i *incidents) lateRenewals() {
	host := i.server.Host(i.T)
	lose := func(etcdclaims.Renewal) {
		host.Inject(claimtest.Fault{On: claimtest.KeepAlive, LoseRequest: true, Times: 2})
	}
	claims := i.client(host, func(cfg *etcdclaims.Config) { cfg.Hooks.Renewed = lose })
	_, err := claims.TryAcquire(i.Context(), "late")
	check(i.T, err)
	lose(etcdclaims.Renewal{})
	host.Inject(claimtest.Fault{On: claimtest.Verify, DelayReply: 500 * time.Millisecond, Times: -1})
}

// deafHandler does not stop when its caller leaves: for HandlerOverdue.
func (i *incidents) deafHandler() {
	claims := i.client(i.server.Host(i.T), nil)
	i.until(func(test context.Context) {
		caller, leave := context.WithCancel(test)
		defer leave()
		_ = claims.TryRun(caller, "deaf", func(context.Context) error {
			leave()
			<-test.Done()
			return nil
		})
	})
}

// staleWrites has a gate refuse the token of an owner that is outlived: for StaleWrites.
func (i *incidents) staleWrites() {
	gate := i.tel.Gate("orders", &fencing.Memory{})
	check(i.T, gate.Admit(i.Context(), fencing.Token{Key: "k", Fence: 2}))
	if err := gate.Admit(i.Context(), fencing.Token{Key: "k", Fence: 1}); !errors.Is(err, fencing.ErrStale) {
		i.Fatal(err)
	}
}

// schedule runs a job every second.
func (i *incidents) schedule(group string, claims *etcdclaims.Client, handler func(context.Context, sched.Tick) error) {
	cfg := sched.Config{Group: group}
	i.tel.InstrumentScheduler(&cfg)
	s, err := sched.New(claims, cfg)
	check(i.T, err)
	check(i.T, s.Add(sched.Job{Name: group, Schedule: calendar.Must(calendar.Every(time.Second, 0)), CatchUp: sched.SkipMissed{}, Handler: handler}))
	i.until(func(ctx context.Context) { _ = s.Run(ctx) })
}

func (i *incidents) queue(name string) *queue.Queue {
	q, err := queue.New(i.client(i.server.Host(i.T), nil), queue.Config{Name: name, MaxAttempts: 1})
	check(i.T, err)
	i.Cleanup(func() { check(i.T, q.Close(context.Background())) })
	i.Cleanup(i.tel.WatchQueue(name, q, 200*time.Millisecond))
	return q
}

// stuckQueue has an item and no worker: for QueueStuck.
func (i *incidents) stuckQueue() {
	_, err := i.queue("stuck").Enqueue(i.Context(), queue.NewItem(nil))
	check(i.T, err)
}

// pausedQueue is for PausedLong.
func (i *incidents) pausedQueue() {
	check(i.T, i.queue("paused").Pause(i.Context(), "staged"))
}

// longWait waits for a key that is held: for WaitsLong.
func (i *incidents) longWait() {
	_, err := i.client(i.server.Host(i.T), nil).TryAcquire(i.Context(), "held")
	check(i.T, err)
	waiter := i.client(i.server.Host(i.T), nil)
	i.until(func(ctx context.Context) { _, _ = waiter.Acquire(ctx, "held") })
}

// freePartitions observes a group that its only member has left: for PartitionsFree.
func (i *incidents) freePartitions() {
	m, err := group.Join(i.Context(), i.client(i.server.Host(i.T), nil), group.Config{Group: "left", Partitions: 4},
		func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { <-ctx.Done(); return nil })
	check(i.T, err)
	view, err := group.Open(i.Context(), i.client(i.server.Host(i.T), nil), "left")
	check(i.T, err)
	i.Cleanup(view.Close)
	i.Cleanup(i.tel.WatchGroup("left", view))
	check(i.T, m.Leave(i.Context()))
}

// flappingOwner takes the ownership of a schedule from its owner again and again: for OwnerFlaps.
func (i *incidents) flappingOwner() {
	claims := i.client(i.server.Host(i.T), nil)
	i.schedule("flapping", claims, func(context.Context, sched.Tick) error { return nil })
	i.until(func(ctx context.Context) {
		for info, err := range claims.Watch(ctx, "sched/") {
			if err == nil && info.Kind == etcdclaims.Claimed && info.Info.Key == "sched/flapping/owner" {
				pause(ctx, time.Second)
				_ = admin.ForceRelease(ctx, claims, info.Info.Key, "staged")
			}
		}
	})
}

// deadLetters has an item that fails, after Prometheus has seen the queue without: for
// DeadLetters.
func (i *incidents) deadLetters() {
	q := i.queue("failing")
	_, err := q.Enqueue(i.Context(), queue.NewItem(nil))
	check(i.T, err)
	i.until(func(ctx context.Context) {
		i.seen(ctx, "queue_dead_letters", `"failing"`)
		_ = q.Work(ctx, queue.WorkerConfig{Handler: func(context.Context, *queue.Delivery) error { return errors.New("staged") }})
	})
}

// lostWork has work without an owner, and work that fails for good after Prometheus has
// seen none: for WorkOrphaned and WorkDead.
func (i *incidents) lostWork() {
	claims := i.client(i.server.Host(i.T), nil)
	i.Cleanup(i.tel.WatchWork("invoices", claims, "", 200*time.Millisecond))
	orphan, err := testwork.Of(claims).TryBegin(i.Context(), "orphan")
	check(i.T, err)
	check(i.T, admin.ForceRelease(i.Context(), claims, orphan.Key(), "staged"))
	i.until(func(ctx context.Context) {
		i.seen(ctx, "work_records", `"invoices"`, `"dead"`)
		_ = testwork.Of(claims).TryRun(ctx, "dead", func(context.Context, *work.Work) error {
			return etcdclaims.Permanent(errors.New("staged"))
		})
	})
}

// cutOff cuts the owner of a schedule off from etcd, which is for Unreachable,
// RequestErrors, ClaimsLost, NoOwner and TicksOverdue. After heal the ticks of the time
// between are TicksLost.
func (i *incidents) cutOff() {
	host := i.server.Host(i.T)
	// With a longer TTL it is the owner for a while without etcd.
	claims := i.client(host, func(cfg *etcdclaims.Config) { cfg.TTL = 2 * etcdclaims.MinTTL })
	owner := make(chan struct{}, 1)
	i.schedule("cut", claims, func(context.Context, sched.Tick) error {
		select {
		case owner <- struct{}{}:
		default:
		}
		return nil
	})
	<-owner
	host.Cut()
	i.heal = host.Heal
	i.Cleanup(host.Heal)
}
