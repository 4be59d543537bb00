package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// Handler handles an item. The context carries the delivery's token. It ends when the item
// is lost or may be soon because etcd does not answer, when the timeout passes, or when the
// worker must stop at once. The item is completed if it returns nil, and fails if it returns
// an error, panics or calls runtime.Goexit. If etcd did not answer for so long that the context
// ended, but the item was not lost, an error gives the item back, as after StopTimeout. Errors
// made by SnoozeFor, etcdclaims.Permanent and etcdclaims.RetryAfter decide what becomes of the
// item. A handler may call the verbs of the delivery itself. The result of the handler then has
// no effect.
type Handler func(ctx context.Context, l *Delivery) error

// Middleware wraps a handler.
type Middleware func(next Handler) Handler

// WorkerConfig configures Work. Handler or Handlers is required.
type WorkerConfig struct {
	// Concurrency is how many items are handled at the same time. Default:
	// GOMAXPROCS.
	Concurrency int
	// Batch is how many items are claimed at once at most. More than 64 count as 64.
	// Default: Concurrency.
	Batch int
	// Timeout is how long a handler may take. Then its context ends. If it has not
	// returned after another Grace, its item fails, and later writes under its fence are
	// refused. Negative: no limit; then set StopTimeout, or Work never returns while a
	// handler does not. Default: 30 s.
	Timeout time.Duration
	// Grace is how long a handler may take to return after its context has ended.
	// Default: 5 s.
	Grace time.Duration
	// StopTimeout is how long handlers may continue after the ctx of Work has ended. Then
	// their contexts end with the cause ErrStopped, and they have another Grace to return.
	// The item of a handler that returned an error, or did not return, is given back, and
	// its attempt does not count; a panic, and errors made by SnoozeFor, etcdclaims.Permanent
	// and etcdclaims.RetryAfter, count as always. So Work returns within StopTimeout plus
	// Grace, and later only while etcd does not answer. Keep that below the time after
	// which the process is killed, which in Kubernetes is 30 s. Zero means no limit but
	// Timeout.
	StopTimeout time.Duration
	// Handlers handle items by their topic.
	Handlers map[string]Handler
	// Handler handles items whose topic has no handler of its own. If it is nil,
	// such items become dead letters at once, and an error is logged.
	Handler Handler
	// Middleware wraps all handlers, the first one outermost.
	Middleware []Middleware
	// TTL is the lease duration of the items. Default: the queue's TTL.
	TTL time.Duration
}

// snoozeError asks for a snooze.
type snoozeError struct{ d time.Duration }

func (e snoozeError) Error() string { return fmt.Sprintf("snoozed for %v", e.d) }

// SnoozeFor returns an error for handlers. A handler that returns it makes its item
// visible again after d, and the attempt does not count.
func SnoozeFor(d time.Duration) error { return snoozeError{max(d, 0)} }

// panicError is the failure of a handler that panicked.
type panicError struct {
	Value any
	Stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("handler panicked: %v\n%s", e.Value, e.Stack) }

// ErrStopped is the cause of a handler's context that ended because of
// WorkerConfig.StopTimeout.
var ErrStopped = errors.New("worker stopped")

var (
	errGoexit  = errors.New("handler called runtime.Goexit")
	errTimeout = errors.New("handler took longer than its timeout")
)

// Work handles items until ctx ends. Then it stops claiming, and lets running handlers
// finish within their timeout and Grace; StopTimeout is a shorter bound. So it returns
// within Timeout plus Grace, 35 s by default, also if a handler never returns, and later
// only while etcd does not answer. It gives back
// items that it had claimed and not begun; their attempts do not count. It returns nil
// after a clean stop. It returns an error if the configuration is wrong, or if etcd
// refuses claims for a reason that lasts, such as a missing permission.
func (q *Queue) Work(ctx context.Context, cfg WorkerConfig) error {
	w, err := q.newWorker(cfg)
	if err != nil {
		return q.fail("work", err)
	}
	return q.fail("work", w.run(ctx))
}

type worker struct {
	q     *Queue
	cfg   WorkerConfig
	stop  *stopBound // of its handlers
	calls handlers
	wait  bool // for items; else calls waits until there are some
	wg    sync.WaitGroup
}

func (q *Queue) newWorker(cfg WorkerConfig) (*worker, error) {
	cfg, err := cfg.withDefaults(q.claims)
	if err != nil {
		return nil, err
	}
	cfg.TTL = cmp.Or(cfg.TTL, q.cfg.TTL)
	calls := pool{taken: make(chan struct{}, cfg.Concurrency), batch: min(cfg.Batch, itemsPerRequest)}
	return &worker{q: q, cfg: cfg, calls: calls, wait: true}, nil
}

// longestTimeout bounds Timeout and Grace, so that their sum is no overflow: a century.
const longestTimeout = math.MaxInt64 / 2

// withDefaults fills in all but what depends on the queue.
func (cfg WorkerConfig) withDefaults(claims *etcdclaims.Client) (WorkerConfig, error) {
	cfg.Concurrency = cmp.Or(cfg.Concurrency, runtime.GOMAXPROCS(0))
	cfg.Batch = cmp.Or(cfg.Batch, cfg.Concurrency)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.Grace = cmp.Or(cfg.Grace, 5*time.Second)
	cfg.Timeout, cfg.Grace = min(cfg.Timeout, longestTimeout), min(cfg.Grace, longestTimeout)
	switch {
	case cfg.Concurrency < 0:
		return cfg, fmt.Errorf("WorkerConfig.Concurrency %d is negative", cfg.Concurrency)
	case cfg.Batch < 0:
		return cfg, fmt.Errorf("WorkerConfig.Batch %d is negative", cfg.Batch)
	case cfg.Grace < 0:
		return cfg, fmt.Errorf("WorkerConfig.Grace %v is negative", cfg.Grace)
	case cfg.StopTimeout < 0:
		return cfg, fmt.Errorf("WorkerConfig.StopTimeout %v is negative", cfg.StopTimeout)
	case cfg.Handler == nil && len(cfg.Handlers) == 0:
		return cfg, errors.New("no handler: set WorkerConfig.Handler, or Handlers for the topics")
	}
	if cfg.TTL != 0 {
		if err := core.Of(claims).CheckTTL(cfg.TTL); err != nil {
			return cfg, fmt.Errorf("WorkerConfig.%w", err)
		}
	}
	if i := slices.IndexFunc(cfg.Middleware, func(wrap Middleware) bool { return wrap == nil }); i >= 0 {
		return cfg, fmt.Errorf("middleware %d is nil", i)
	}
	for topic, h := range cfg.Handlers {
		if h == nil {
			return cfg, fmt.Errorf("handler of topic %q is nil", topic)
		}
	}
	return cfg, nil
}

func (w *worker) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	w.stop = w.cfg.boundStop(ctx.Done())
	defer w.stop.cancel()
	defer w.wg.Wait()
	defer stop() // handlers that do not stop are not waited for
	defer w.q.await()()
	return w.serve(ctx, func(err error) bool {
		return !passing(err) && !errors.Is(err, etcdclaims.ErrLost) && !errors.Is(err, rpctypes.ErrNoSpace)
	})
}

// serve has items handled until ctx ends. It returns an error that lasts.
func (w *worker) serve(ctx context.Context, lasts func(error) bool) error {
	outage := false
	for try := 0; ctx.Err() == nil; {
		err := w.q.fail("claim", w.claim(ctx))
		switch {
		case ctx.Err() != nil:
		case err == nil:
			if outage {
				w.q.log.Info("claiming again")
			}
			try, outage = 0, false
		case lasts(err):
			return err
		default:
			if !outage {
				w.q.log.Warn("cannot claim; retrying", zap.Error(err))
			}
			outage = true
			retry.Pause(ctx, try)
			try++
		}
	}
	return nil
}

// claim waits for handlers and items, and has some handled.
func (w *worker) claim(ctx context.Context) error {
	n, err := w.calls.acquire(ctx)
	if n == 0 {
		return err
	}
	b, err := w.q.ask(ctx, &want{n: n, wait: w.wait, known: true, ttl: w.cfg.TTL})
	w.calls.release(n - len(b.Deliveries))
	for _, l := range b.Deliveries {
		w.wg.Go(func() {
			defer w.calls.release(1)
			if ctx.Err() != nil {
				w.settle(l, l.Release(context.WithoutCancel(ctx)))
				return
			}
			w.handle(ctx, l)
		})
	}
	return err
}

// handle runs the handler of an item and records what came of it. It returns when the
// handler has, or has had its time.
func (w *worker) handle(stopping context.Context, l *Delivery) {
	h := w.handlerOf(l)
	if h == nil {
		w.q.log.Error("no handler for topic, item goes to the dead letters", zap.String("topic", l.Topic()), zap.String("item", l.ID()))
		w.settle(l, l.Discard(context.WithoutCancel(stopping), fmt.Sprintf("no handler for topic %q", l.Topic())))
		return
	}
	ctx, end := context.WithCancelCause(l.Context())
	defer end(nil)
	var timeout <-chan time.Time
	if w.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.cfg.Timeout, errTimeout)
		defer cancel()
		timeout = time.After(w.cfg.Timeout + w.cfg.Grace)
	}
	defer context.AfterFunc(w.stop.soft, func() { end(ErrStopped) })()
	done := w.call(ctx, h, l)
	stopped := false // else it is the handler's own doing
	select {
	case err := <-done:
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, ErrStopped) && stopsBy(err):
			w.giveBack(stopping, l)
			return
		case errors.Is(cause, etcdclaims.ErrLost) && stopsBy(err):
			w.giveBackAs("etcd did not answer in time", stopping, l)
			return
		case errors.Is(cause, errTimeout) && errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("%w of %v: %w", errTimeout, w.cfg.Timeout, err)
		}
		w.finish(stopping, l, err)
		return
	case <-w.stop.over:
		stopped = !errors.Is(context.Cause(ctx), errTimeout)
	case <-timeout:
		stopped = errors.Is(context.Cause(ctx), ErrStopped)
	}
	// The handler heeds no context. Its item goes to others, and its fence is
	// outlived: whatever it writes with it is refused.
	w.q.log.Error("handler does not stop, its item is taken from it",
		append(l.fields(), zap.Duration("timeout", w.cfg.Timeout), zap.NamedError("cause", context.Cause(ctx)))...)
	if stopped {
		w.giveBack(stopping, l)
	} else {
		w.finish(stopping, l, fmt.Errorf("%w of %v, and did not stop", errTimeout, w.cfg.Timeout))
	}
	select {
	case <-done: // until then it keeps its place, so that the number of handlers is bounded
	case <-stopping.Done():
	}
}

// handlerOf returns the handler of an item inside its middleware, or nil if the item's topic
// has no handler. The middleware is called with the handler, so that its panics are caught too.
func (w *worker) handlerOf(l *Delivery) Handler {
	inner := w.cfg.Handlers[l.Topic()]
	if inner == nil {
		inner = w.cfg.Handler
	}
	if inner == nil {
		return nil
	}
	return func(ctx context.Context, l *Delivery) error {
		h := inner
		for _, wrap := range slices.Backward(w.cfg.Middleware) {
			h = wrap(h)
		}
		return h(ctx, l)
	}
}

// call calls a handler, and turns a panic or Goexit into an error. A panic is logged here:
// its item may have been settled or lost before.
func (w *worker) call(ctx context.Context, h Handler, l *Delivery) <-chan error {
	result := make(chan error, 1)
	go func() {
		returned := false
		defer func() {
			if returned {
				return
			}
			if v := recover(); v != nil {
				stack := debug.Stack()
				w.q.log.Error("handler panicked", append(l.fields(), zap.Any("panic", v), zap.ByteString("stack", stack))...)
				result <- &panicError{Value: v, Stack: stack}
				return
			}
			result <- errGoexit
		}()
		err := h(ctx, l)
		returned = true
		result <- err
	}()
	return result
}

// finish records what a handler's result asks for, if the item is this worker's still.
func (w *worker) finish(stopping context.Context, l *Delivery, err error) {
	if l.Err() != nil {
		switch err := l.Err(); {
		case errors.Is(err, etcdclaims.ErrClosed):
			w.q.log.Info("item given back, as the queue is closed", l.fields()...)
		case errors.Is(err, ErrCancelled):
			w.q.log.Info("item cancelled while a handler had it", append(l.fields(), zap.Error(err))...)
		case errors.Is(err, etcdclaims.ErrLost):
			w.settle(l, err)
		}
		return // the handler has ended the lease itself, or lost it
	}
	ctx := context.WithoutCancel(stopping)
	var snooze snoozeError
	switch {
	case err == nil:
		err = l.Complete(ctx)
	case errors.As(err, &snooze):
		_, err = l.Snooze(ctx, snooze.d)
	default:
		var out Outcome
		cause := err
		if out, err = l.Fail(ctx, cause); err == nil {
			w.logFailed(l, out, cause)
		}
	}
	w.settle(l, err)
}

// logFailed logs a failed attempt: as an error if it was the last one.
func (w *worker) logFailed(l *Delivery, out Outcome, cause error) {
	if p := new(panicError); errors.As(cause, &p) {
		cause = fmt.Errorf("handler panicked: %v", p.Value) // its stack has a line of its own
	}
	fields := append(l.fields(), zap.Bool("dead", out.Dead), zap.Error(cause))
	if out.Dead {
		w.q.log.Error("item failed", fields...)
		return
	}
	w.q.log.Warn("item failed", append(fields, zap.Time("until", out.Until))...)
}

// fields returns the log fields that identify an attempt.
func (l *Delivery) fields() []zap.Field {
	return []zap.Field{
		zap.String("item", l.ID()), zap.String("topic", l.Topic()), zap.Int("attempt", l.Attempt()), zap.Int64("fence", l.Fence()),
	}
}

// settle logs a verb that did not succeed: no other goroutine sees it. If the item may
// be this worker's still it is given back.
func (w *worker) settle(l *Delivery, err error) {
	if err != nil {
		l.abandon()
		w.q.log.Warn("item not settled",
			zap.String("item", l.ID()), zap.String("topic", l.Topic()), zap.Int64("fence", l.Fence()), zap.Error(err))
	}
}
