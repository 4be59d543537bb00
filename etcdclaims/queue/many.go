package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// ManyConfig says how WorkMany works.
type ManyConfig struct {
	// Queue returns the configuration of the queue of a name, and whether this process
	// serves it. Default: all queues, with default configurations.
	Queue func(name string) (cfg Config, serve bool)
	// Worker says how items are handled. Its Concurrency is for all queues together.
	// Lease.Queue returns which queue an item is from.
	Worker WorkerConfig
	// Logger receives what happens to queues as a whole. Default: none.
	Logger *zap.Logger
}

// WorkMany handles the items of all queues under the client's prefix that have work,
// until ctx ends; then it stops as Work does. Queues are found by the keys that name
// those with work, so any number of empty ones costs nothing.
//
// Queues are served in turn: whenever a handler is free, the queue with visible items
// that was served longest ago is next, and one of them at random if that is true of
// several. A queue with ten thousand items delays one with a single item by one turn.
//
// It returns nil after a clean stop, and an error if the configuration is wrong or the
// queues cannot be read, as for lack of permission. A queue that cannot be served is
// logged and tried again.
func WorkMany(ctx context.Context, claims *etcdclaims.Client, cfg ManyConfig) error {
	if claims.Passthrough() {
		return fmt.Errorf("work on many queues: %w", etcdclaims.ErrPassthrough)
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.Queue == nil {
		cfg.Queue = func(name string) (Config, bool) { return Config{Name: name, Logger: cfg.Logger}, true }
	}
	worker, err := cfg.Worker.withDefaults()
	if err != nil {
		return fmt.Errorf("work on many queues: %w", err)
	}
	m := &many{claims: claims, cfg: cfg, worker: worker, free: worker.Concurrency, waiting: map[*served]chan int{}, queues: map[string]*served{}}
	err = m.discover(ctx)
	m.wg.Wait()
	if err != nil {
		return fmt.Errorf("work on many queues: %w", err)
	}
	return nil
}

// many serves many queues with one set of handlers.
type many struct {
	claims *etcdclaims.Client
	cfg    ManyConfig
	worker WorkerConfig
	wg     sync.WaitGroup
	queues map[string]*served // by the name; discover's goroutine only

	mu      sync.Mutex
	free    int                  // handlers
	turn    int64                // of the queue that was served last
	waiting map[*served]chan int // queues with visible items
}

// served is a queue with work.
type served struct {
	stop context.CancelFunc
	turn int64 // when it was served last; 0: never. Under the mutex of many
}

// discover serves the queues that have work, and stops when they have none any more. It
// returns when ctx ends.
func (m *many) discover(ctx context.Context) error {
	ctx = clientv3.WithRequireLeader(ctx)
	prefix := keys{top: m.claims.Prefix() + "queue/"}.actives()
	for try := 0; ctx.Err() == nil; try++ {
		short, cancel := context.WithTimeout(ctx, requestTimeout)
		resp, err := m.claims.KV().Get(short, prefix, clientv3.WithPrefix())
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !passing(err):
			return err
		case err == nil:
			there := map[string]bool{}
			for _, kv := range resp.Kvs {
				there[string(kv.Key)] = true
				m.serve(ctx, kv)
			}
			for key := range m.queues {
				if !there[key] {
					m.unserve(key)
				}
			}
			for news := range m.claims.Etcd().Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1)) {
				for _, ev := range news.Events {
					if try = 0; ev.Type == mvccpb.Event_PUT {
						m.serve(ctx, ev.Kv)
					} else {
						m.unserve(string(ev.Kv.Key))
					}
				}
			}
		}
		if !pause(ctx, try) {
			return nil
		}
	}
	return nil
}

// serve begins to serve the queue that a key names, if it is not served.
func (m *many) serve(ctx context.Context, active *mvccpb.KeyValue) {
	key := string(active.Key)
	if m.queues[key] != nil {
		return
	}
	named, err := decode[spec](active.Key, active.Value)
	if err != nil || !strings.HasSuffix(key, "/"+keyspace.Digest(named.Name)) {
		return // of a newer version, or not ours
	}
	cfg, ok := m.cfg.Queue(named.Name)
	if !ok {
		return
	}
	cfg.Name = named.Name
	ctx, stop := context.WithCancel(ctx)
	s := &served{stop: stop}
	m.queues[key] = s
	m.wg.Go(func() {
		defer stop()
		m.work(ctx, s, cfg)
	})
}

func (m *many) unserve(key string) {
	if s := m.queues[key]; s != nil {
		s.stop()
		delete(m.queues, key)
	}
}

// work serves one queue until ctx ends.
func (m *many) work(ctx context.Context, s *served, cfg Config) {
	q, err := New(m.claims, cfg)
	if err != nil {
		m.cfg.Logger.Error("queue not served", zap.String("queue", cfg.Name), zap.Error(err))
		return
	}
	w := &worker{q: q, cfg: m.worker}
	if w.cfg.Lease == 0 {
		w.cfg.Lease = q.cfg.TTL
	}
	defer func() {
		w.wg.Wait()
		if err := q.Close(context.WithoutCancel(ctx)); err != nil {
			m.cfg.Logger.Warn("queue not closed", zap.String("queue", cfg.Name), zap.Error(err))
		}
	}()
	outage := false
	for try := 0; ctx.Err() == nil; {
		err := m.claim(ctx, s, w)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !outage {
				q.log.Warn("cannot claim, retrying", zap.Error(err))
			}
			outage = true
			try = min(try+1, 10)
			pause(ctx, try)
		default:
			if outage {
				q.log.Info("claiming again")
			}
			try, outage = 0, false
		}
	}
}

// claim waits until the queue has visible items and it is its turn, and has some handled.
func (m *many) claim(ctx context.Context, s *served, w *worker) error {
	if _, err := w.q.ask(ctx, &want{wait: true, ttl: w.cfg.Lease}); err != nil {
		return err
	}
	n := m.acquire(ctx, s)
	if n == 0 {
		return nil // ctx ended
	}
	b, err := w.q.ask(ctx, &want{n: n, known: true, ttl: w.cfg.Lease})
	m.release(n - len(b.Leases))
	for _, l := range b.Leases {
		w.wg.Go(func() {
			defer m.release(1)
			if ctx.Err() != nil {
				w.settle(l, l.Release(context.WithoutCancel(ctx)))
				return
			}
			w.handle(ctx, l)
		})
	}
	return err
}

// acquire waits for the queue's turn, and returns how many handlers it may use; 0 if ctx
// ends first.
func (m *many) acquire(ctx context.Context, s *served) int {
	granted := make(chan int, 1)
	m.mu.Lock()
	m.waiting[s] = granted
	m.grant()
	m.mu.Unlock()
	select {
	case n := <-granted:
		return n
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case n := <-granted:
		m.free += n
		m.grant()
	default:
		delete(m.waiting, s)
	}
	return 0
}

func (m *many) release(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += n
	m.grant()
}

// grant gives the free handlers to queues that wait for them: those served longest ago
// first, each an equal share.
func (m *many) grant() {
	for m.free > 0 && len(m.waiting) > 0 {
		var next *served
		same := 0
		for s := range m.waiting {
			switch {
			case next == nil || s.turn < next.turn:
				next, same = s, 1
			case s.turn == next.turn:
				if same++; rand.N(same) == 0 {
					next = s
				}
			}
		}
		n := max(1, min(m.free/len(m.waiting), m.worker.Batch))
		m.turn++
		next.turn = m.turn
		m.free -= n
		m.waiting[next] <- n
		delete(m.waiting, next)
	}
}
