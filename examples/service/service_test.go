package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider counts what it is asked for. It takes a second, fails each invoice of bob once, and
// cannot reach joe.
type provider struct {
	mu            sync.Mutex
	calls         map[string]int // by invoice
	running, most int
}

func (p *provider) send(ctx context.Context, in Invoice) error {
	p.mu.Lock()
	p.calls[in.ID]++
	n := p.calls[in.ID]
	p.running++
	p.most = max(p.most, p.running)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running--
	}()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case in.Customer == "joe":
		return etcdclaims.Permanent(errors.New("joe has no address"))
	case in.Customer == "bob" && n == 1:
		return errors.New("try again")
	}
	return nil
}

// world is an etcd in virtual time, a database, and processes of the service.
type world struct {
	*testing.T
	etcd     *claimtest.Server
	db       *sql.DB
	provider *provider
}

func virtually(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, etcd: claimtest.Start(t), provider: &provider{calls: map[string]int{}}}
		db, closeDB, err := openDB(t.Context(), filepath.Join(t.TempDir(), "service.db"))
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1) // no connection waits for the file, which virtual time would not wait for
		w.db = db
		defer closeDB()
		f(w)
	})
}

// process returns a process of the service, on a machine of its own.
func (w *world) process() (*service, *claimtest.Host) {
	w.Helper()
	host := w.etcd.Host(w.T)
	s, err := newService(host.Etcd(w.T), w.db, slog.New(slog.DiscardHandler), time.Minute, w.provider.send)
	if err != nil {
		w.Fatal(err)
	}
	return s, host
}

// start runs a process until stop is called, which returns what run did.
func start(s *service) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	return func() error { cancel(); return <-done }
}

// count returns the result of a query for a number.
func (w *world) count(query string, args ...any) (n int) {
	w.Helper()
	if err := w.db.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}

// Two processes bill for ten minutes, and one of them is cut off for two. Each customer has one
// invoice for each minute, all that can be sent are sent, and the provider has two calls at most.
func TestBilling(t *testing.T) {
	virtually(t, func(w *world) {
		one, host := w.process()
		two, _ := w.process()
		stops := []func() error{start(one), start(two)}
		time.Sleep(3*time.Minute + 500*time.Millisecond) // in the middle of calls
		host.Cut()
		time.Sleep(2 * time.Minute)
		host.Heal()
		time.Sleep(5*time.Minute + 20*time.Second)
		dead := 0
		for letter, err := range two.queue.DeadLetters(w.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(letter.ID, "/joe") || letter.Attempts > 2 || !strings.Contains(letter.Why, "no address") {
				t.Errorf("dead letter %s after %d attempts: %s", letter.ID, letter.Attempts, letter.Why)
			}
			dead++
		}
		for _, stop := range stops {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		ticks := w.count(`SELECT count(DISTINCT tick) FROM invoices`)
		if ticks < 8 || w.count(`SELECT count(*) FROM invoices`) != 4*ticks {
			t.Errorf("%d ticks", ticks)
		}
		if open := w.count(`SELECT count(*) FROM invoices WHERE NOT sent AND customer <> 'joe'`); open != 0 || dead != ticks {
			t.Errorf("%d invoices are not sent, and %d of joe's %d are dead letters", open, dead, ticks)
		}
		if w.provider.most != 2 {
			t.Errorf("the provider had %d calls at a time", w.provider.most)
		}
		for id, n := range w.provider.calls {
			if strings.HasSuffix(id, "/bob") && n < 2 {
				t.Errorf("%s was tried %d times", id, n)
			}
		}
	})
}

// What a former owner of the job writes late is refused, and nothing of it stays.
func TestLateTick(t *testing.T) {
	virtually(t, func(w *world) {
		s, _ := w.process()
		bill := func(fence int64, minute int) error {
			ctx := fencing.NewContext(w.Context(), fencing.Token{Key: "sched/billing/bill", Fence: fence})
			return s.bill(ctx, sched.Tick{Group: "billing", Job: "bill", Nominal: time.Now().Add(time.Duration(minute) * time.Minute)})
		}
		if err := bill(7, 1); err != nil {
			t.Fatal(err)
		}
		if err := bill(6, 0); !errors.Is(err, fencing.ErrStale) {
			t.Errorf("the late tick: %v", err)
		}
		if n := w.count(`SELECT count(*) FROM invoices`); n != 4 {
			t.Errorf("%d invoices", n)
		}
		if err := bill(7, 1); err != nil { // another attempt adds nothing
			t.Error(err)
		}
		st, err := s.queue.Stats(w.Context())
		if err != nil || st.Ready != 4 {
			t.Errorf("%d items wait, %v", st.Ready, err)
		}
		if err := errors.Join(s.queue.Close(w.Context()), s.claims.Close(w.Context())); err != nil {
			t.Error(err)
		}
	})
}

// An item that a later version enqueued is a dead letter, and does not hold up the others.
func TestForeignItem(t *testing.T) {
	virtually(t, func(w *world) {
		s, _ := w.process()
		if _, err := s.queue.Enqueue(w.Context(), queue.NewItem([]byte("v2:..."), queue.ID("foreign"))); err != nil {
			t.Fatal(err)
		}
		stop := start(s)
		time.Sleep(90 * time.Second)
		if info, err := s.queue.Look(w.Context(), "foreign"); err != nil || info.Where != queue.Dead {
			t.Errorf("%s: %v", info.Where, err)
		}
		if n := w.count(`SELECT count(*) FROM invoices WHERE sent`); n < 3 {
			t.Errorf("%d invoices are sent", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A stop lets calls in progress end, gives back what was not begun, and leaves no claim.
func TestStop(t *testing.T) {
	virtually(t, func(w *world) {
		s, _ := w.process()
		stop := start(s)
		for w.provider.busy() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		begin := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > 20*time.Second {
			t.Errorf("the stop took %v", d)
		}
		sent := w.count(`SELECT count(*) FROM invoices WHERE sent`)
		if n := w.provider.busy(); n != 0 || sent == 0 {
			t.Errorf("%d calls go on, %d invoices are sent", n, sent)
		}
		left, err := w.etcd.Admin().Get(w.Context(), "/service/own/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range left.Kvs {
			if !strings.HasSuffix(string(kv.Key), "/own/provider") { // the number of slots stays
				t.Errorf("left over: %s", kv.Key)
			}
		}
	})
}

func (p *provider) busy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

func TestHealthAndMetrics(t *testing.T) {
	virtually(t, func(w *world) {
		s, host := w.process()
		stop := start(s)
		get := func(path string) *httptest.ResponseRecorder {
			r := httptest.NewRecorder()
			s.handler().ServeHTTP(r, httptest.NewRequestWithContext(w.Context(), http.MethodGet, path, nil))
			return r
		}
		time.Sleep(2 * time.Minute)
		if r := get("/healthz"); r.Code != http.StatusOK {
			t.Errorf("status %d: %s", r.Code, r.Body)
		}
		host.Cut()
		time.Sleep(time.Minute)
		if r := get("/healthz"); r.Code != http.StatusServiceUnavailable || !strings.Contains(r.Body.String(), "etcd") {
			t.Errorf("cut off, status %d: %s", r.Code, r.Body)
		}
		host.Heal()
		time.Sleep(time.Minute)
		body := get("/metrics").Body.String()
		for _, want := range []string{`etcdclaims_job="bill"`, `queue_item_state="ready"`, `messaging_destination_name="invoices"`} {
			if !strings.Contains(body, want) {
				t.Errorf("no %s in the metrics:\n%s", want, body)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The program serves until SIGTERM, and then ends without an error.
func TestProgram(t *testing.T) {
	out := &firstSent{sent: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- program("", "", "127.0.0.1:0", time.Second, out) }()
	select {
	case <-out.sent:
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Signal(syscall.SIGTERM)
		}
		if err != nil {
			t.Skip("this system has no SIGTERM: ", err)
		}
	case err := <-done:
		t.Fatal("it ended: ", err)
	case <-time.After(time.Minute):
		t.Fatal("nothing was sent")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// firstSent closes sent when the log says so.
type firstSent struct {
	once sync.Once
	sent chan struct{}
}

func (w *firstSent) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("msg=sent")) {
		w.once.Do(func() { close(w.sent) })
	}
	return len(line), nil
}
