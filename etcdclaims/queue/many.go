package queue

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/feed"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// ManyConfig configures WorkMany.
type ManyConfig struct {
	// Queue returns the configuration of the queue with the given name, and whether this
	// process serves it. Default: the process serves all queues, each with its stored
	// order and bounds, as Open does.
	Queue func(name string) (cfg Config, serve bool)
	// Worker configures how items are handled. Its Concurrency counts the items of all
	// queues together. Delivery.Queue returns the queue of an item.
	Worker WorkerConfig
	// Logger receives events of queues as a whole. Default: the Logger of the client.
	Logger *zap.Logger
}

// WorkMany handles the items of all queues under the client's prefix that have work,
// until ctx ends; then it stops as Work does. It finds these queues by keys that name
// them, so empty queues cost nothing.
//
// Queues are served in turn. A free handler takes an item from the queue that was served
// longest ago, of those with visible items. Ties are broken at random. A queue with ten
// thousand items delays a queue with one item by one turn.
//
// It returns nil after a clean stop. If the configuration is wrong, or the queues cannot
// be read, it stops in the same way and returns an error. A missing permission is such an
// error, and so is a client that was closed before. A queue that cannot be served is logged and
// tried again.
//
// At rest WorkMany sends one read each ten seconds, which finds queues that its watch did
// not report.
func WorkMany(ctx context.Context, claims *etcdclaims.Client, cfg ManyConfig) error {
	if err := passthrough.Refuse(claims); err != nil {
		return errtext.Wrap("work on many queues", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = attach.Logger(claims, zap.NewNop)
	}
	worker, err := cfg.Worker.withDefaults(claims)
	if err != nil {
		return errtext.Wrap("work on many queues", err)
	}
	ctx, end := context.WithCancelCause(ctx)
	cancel := func() { end(nil) }
	defer cancel()
	defer attach.Of(claims).Await("queues")()
	returned := make(chan struct{})
	defer close(returned)
	m := &many{
		ctx: ctx, claims: claims, cfg: cfg, worker: worker, free: worker.Concurrency,
		waiting: map[*served]chan int{}, queues: map[string]*served{}, opened: map[*Queue]bool{},
	}
	defer attach.Of(claims).OnClose(func(closing context.Context) {
		end(etcdclaims.ErrClosed)
		select {
		case <-returned:
		case <-closing.Done():
			m.closeAll(closing)
		}
	})()
	if err := context.Cause(ctx); errors.Is(err, etcdclaims.ErrClosed) { // it was before
		return errtext.Wrap("work on many queues", err)
	}
	err = m.discover(ctx)
	cancel() // without discovery nothing is served
	m.wg.Wait()
	if err != nil {
		return errtext.Wrap("work on many queues", txn.Denied(err))
	}
	return nil
}

// many serves many queues with one set of handlers.
type many struct {
	ctx     context.Context // of the serving
	claims  *etcdclaims.Client
	cfg     ManyConfig
	worker  WorkerConfig
	wg      sync.WaitGroup
	queues  map[string]*served // by the name; discover's goroutine only
	streams feed.Streams       // of the watch of queues with work

	mu      sync.Mutex
	free    int                  // handlers
	turn    int64                // of the queue that was served last
	waiting map[*served]chan int // queues with visible items
	opened  map[*Queue]bool      // and not closed yet
}

// served is a queue with work.
type served struct {
	name string
	open func(ctx context.Context) (*Queue, error)
	stop context.CancelFunc
	turn int64 // when it was served last; 0: never. Under the mutex of many
}

// relistActive is how long at most a lost event of a queue with work goes unnoticed.
const relistActive = defaultTTL / 3

// discover serves the queues that have work, and stops serving each when its work is
// done. It returns when ctx ends. A watch is a hint: the keys are read again from time
// to time.
func (m *many) discover(ctx context.Context) error {
	ctx = clientv3.WithRequireLeader(ctx)
	for try := 0; ctx.Err() == nil; try++ {
		rev, err := m.list(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !passing(err):
			return err
		case err == nil && m.follow(ctx, rev):
			try = 0
		}
		if !retry.Pause(ctx, try) {
			return nil
		}
	}
	return nil
}

func (m *many) actives() string { return item.Actives(m.claims.Prefix()) }

// list reads which queues have work, and serves these.
func (m *many) list(ctx context.Context) (rev int64, err error) {
	resp, err := get(ctx, m.claims, m.actives(), clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	there := map[string]bool{}
	for _, kv := range resp.Kvs {
		there[string(kv.Key)] = true
		m.serve(kv)
	}
	for key := range m.queues {
		if !there[key] {
			m.unserve(key)
		}
	}
	return resp.Header.Revision, nil
}

// follow serves queues as they have work after a revision, until the watch or a read
// fails. It reports whether anything came of it.
func (m *many) follow(ctx context.Context, rev int64) (well bool) {
	news, stop := m.streams.Open(ctx, m.claims.Etcd(), requestTimeout, m.actives(), clientv3.WithPrefix(), clientv3.WithRev(rev+1))
	defer stop()
	again := time.NewTicker(relistActive)
	defer again.Stop()
	for {
		select {
		case resp, open := <-news:
			if !open || resp.Err() != nil {
				return well
			}
			for _, ev := range resp.Events {
				switch {
				case ev.Kv.ModRevision <= rev: // a read has shown what came of it
				case ev.Type == mvccpb.Event_PUT:
					m.serve(ev.Kv)
				default:
					m.unserve(string(ev.Kv.Key))
				}
			}
		case <-again.C:
			now, err := m.list(ctx)
			if err != nil || now < rev {
				return well // etcd is unreachable, or was restored
			}
			rev = now
		}
		well = true
	}
}

// serve begins to serve the queue that a key names, if it is not served.
func (m *many) serve(active *mvccpb.KeyValue) {
	key := string(active.Key)
	if m.queues[key] != nil {
		return
	}
	named, err := item.Decode[spec](active.Key, active.Value)
	if err != nil || !strings.HasSuffix(key, "/"+keyspace.Digest(named.Name)) {
		return // of a newer version, or not ours
	}
	open := func(ctx context.Context) (*Queue, error) { return m.open(ctx, named) }
	if m.cfg.Queue != nil {
		cfg, ok := m.cfg.Queue(named.Name)
		if !ok {
			return
		}
		cfg.Name = named.Name
		open = func(context.Context) (*Queue, error) { return newUnattached(m.claims, cfg) }
	}
	ctx, stop := context.WithCancel(m.ctx)
	s := &served{stop: stop, name: named.Name, open: open}
	m.queues[key] = s
	m.wg.Go(func() {
		defer stop()
		m.work(ctx, s)
	})
}

// open opens a queue as it was made. One into which only Op has enqueued was not made yet: it is to be as
// Op has noted.
func (m *many) open(ctx context.Context, noted spec) (*Queue, error) {
	cfg, err := storedConfig(ctx, m.claims, noted.Name)
	if errors.Is(err, errNoQueue) {
		cfg, err = configOf(noted), nil
	}
	if err != nil {
		return nil, err
	}
	cfg.Logger = m.cfg.Logger
	return newUnattached(m.claims, cfg)
}

func (m *many) unserve(key string) {
	if s := m.queues[key]; s != nil {
		s.stop()
		delete(m.queues, key)
	}
}

// work serves one queue until ctx ends.
func (m *many) work(ctx context.Context, s *served) {
	failing := false // and that was logged
	for try := 0; ctx.Err() == nil; {
		q, err := s.open(ctx)
		if err == nil {
			err = m.workOn(ctx, s, q)
		}
		if err != nil && ctx.Err() == nil {
			if !failing {
				m.cfg.Logger.Error("queue not served, retrying", zap.String("queue", s.name), zap.Error(err))
			}
			failing = true
			retry.Pause(ctx, try)
			try++
		}
	}
}

// workOn serves a queue until ctx ends, or until it turns out to have another
// configuration than it was opened with.
func (m *many) workOn(ctx context.Context, s *served, q *Queue) error {
	defer m.keep(q)()
	w := &worker{q: q, cfg: m.worker, stop: m.worker.boundStop(m.ctx.Done())}
	w.calls = turn{many: m, of: s, w: w}
	w.cfg.TTL = cmp.Or(w.cfg.TTL, q.cfg.TTL)
	defer func() {
		w.wg.Wait()
		w.stop.cancel()
		if ctx.Err() != nil && m.ctx.Err() == nil { // its key is gone: the keeper or an operator deleted it
			q.reactivate(m.ctx)
		}
		if err := q.Close(context.WithoutCancel(ctx)); err != nil {
			m.cfg.Logger.Warn("queue not closed", zap.String("queue", s.name), zap.Error(err))
		}
	}()
	return w.serve(ctx, func(err error) bool { return errors.Is(err, ErrConfig) })
}

// reactivate notes that the queue has work, if it has any and that is not noted. The
// keeper of a queue removes the note only if the queue has no work; but WorkMany keeps
// only queues that are noted.
func (q *Queue) reactivate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	s, err := q.sessions.live(ctx)
	if err == nil {
		err = q.keeper.activate(ctx, s)
	}
	if err != nil {
		q.log.Warn("not known whether the queue has work", zap.Error(err))
	}
}

// turn is the handlers of all queues, for one of them.
type turn struct {
	*many
	of *served
	w  *worker
}

// acquire waits until the queue has visible items and it is its turn.
func (t turn) acquire(ctx context.Context) (n int, err error) {
	if _, err := t.w.q.ask(ctx, &want{wait: true, ttl: t.w.cfg.TTL}); err != nil {
		return 0, err
	}
	return t.wait(ctx, t.of), nil
}

// wait waits for the queue's turn, and returns how many handlers it may use; 0 if ctx
// ends first.
func (m *many) wait(ctx context.Context, s *served) int {
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

// keep lists a queue as one that closeAll closes, until done is called.
func (m *many) keep(q *Queue) (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened[q] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.opened, q)
	}
}

// closeAll closes the queues under handlers that do not return in time: their items go back
// without an attempt, as those of Queue.Work do.
func (m *many) closeAll(ctx context.Context) {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.opened))
	m.mu.Unlock()
	var wg sync.WaitGroup
	for _, q := range all {
		wg.Go(func() { _ = q.Close(ctx) }) // the keeper of the queue finds what is left
	}
	wg.Wait()
}
