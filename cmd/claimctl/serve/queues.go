package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/clock"
)

const (
	maxQueues = 256
	maxItems  = 64 // of one request
	maxDelay  = 366 * 24 * time.Hour
)

// itemHolding is an item that a program holds.
type itemHolding struct {
	*queue.Delivery
	clock  clock.Clock
	queues *queues
	from   *openQueue
}

// check does not ask whether a verb is under way, as Check does: that verb can be repeated.
func (h itemHolding) check() error { return h.Err() }

func (h itemHolding) left() time.Duration {
	if h.Check() != nil {
		return 0
	}
	return h.Remaining(h.clock.Time())
}

// giveUp makes the item visible again. The attempt counts if the worker was silent: the item
// may be what it died of.
func (h itemHolding) giveUp(ctx context.Context, why error) error {
	if errors.Is(why, errStopped) || errors.Is(why, errUnread) {
		return h.Release(ctx)
	}
	_, err := h.Fail(ctx, etcdclaims.RetryAfter(fmt.Errorf("the worker is gone: %w", why), 0))
	return err
}

func (h itemHolding) leave() { h.queues.leave(h.from, false) }

// queues are those that programs use, and those that they have used last.
type queues struct {
	mu   sync.Mutex
	open map[string]*openQueue
}

// openQueue is a queue from its first use on.
type openQueue struct {
	name  string
	ready chan struct{} // closed when queue or err is set
	queue *queue.Queue
	err   error
	users int // requests and deliveries; guarded by queues.mu
}

// withQueue calls f with the queue of a name, and again if the queue was reconfigured since it was opened.
func (s *Server) withQueue(ctx context.Context, name string, f func(*openQueue) error) error {
	for again := true; ; again = false {
		o, err := s.queue(ctx, name)
		if err != nil {
			return err
		}
		err = f(o)
		stale := errors.Is(err, queue.ErrConfig)
		s.queues.leave(o, stale)
		if !stale || !again {
			return err
		}
	}
}

// queue returns the queue of a name, with the configuration that it has, or the default of a new
// one. The caller leaves it.
func (s *Server) queue(ctx context.Context, name string) (*openQueue, error) {
	o, first, err := s.queues.enter(name)
	if err != nil {
		return nil, err
	}
	if first {
		o.queue, o.err = queue.Open(ctx, s.cfg.Claims, name)
		if errors.Is(o.err, queue.ErrNotFound) {
			o.queue, o.err = queue.New(s.cfg.Claims, queue.Config{Name: name})
		}
		close(o.ready)
	}
	select {
	case <-o.ready:
		err = o.err
	case <-ctx.Done():
		s.queues.leave(o, false)
		return nil, context.Cause(ctx)
	}
	if err != nil {
		s.queues.leave(o, true)
	}
	return o, err
}

// enter returns the entry of a name. If first is set the caller must open it. If there are too many
// it closes one that nobody uses.
func (q *queues) enter(name string) (o *openQueue, first bool, err error) {
	var idle *openQueue
	q.mu.Lock()
	defer func() {
		q.mu.Unlock()
		if idle != nil {
			q.leave(idle, true)
		}
	}()
	if o = q.open[name]; o != nil {
		o.users++
		return o, false, nil
	}
	if len(q.open) >= maxQueues {
		for _, other := range q.open {
			if other.users == 0 {
				idle, other.users = other, 1
				delete(q.open, other.name)
				break
			}
		}
	}
	if len(q.open) >= maxQueues {
		return nil, false, refused{limit, fmt.Sprintf("%d queues are in use.", maxQueues)}
	}
	o = &openQueue{name: name, ready: make(chan struct{}), users: 1}
	q.open[name] = o
	return o, true, nil
}

// leave ends one use of a queue. The next request opens one anew that is stale. The last user
// closes it.
func (q *queues) leave(o *openQueue, stale bool) {
	q.mu.Lock()
	if stale && q.open[o.name] == o {
		delete(q.open, o.name)
	}
	o.users--
	over := o.users == 0 && q.open[o.name] != o
	q.mu.Unlock()
	if over && o.queue != nil {
		_ = o.queue.Close(context.Background())
	}
}

type itemRequest struct {
	ID       string          `json:"id"`
	Payload  json.RawMessage `json:"payload"`
	Base64   []byte          `json:"payload_base64"`
	Priority *int            `json:"priority"`
	DelayMS  int64           `json:"delay_ms"`
}

type itemView struct {
	ID    string `json:"id"`
	Added bool   `json:"added"`
}

// postItem puts an item into a queue.
func (s *Server) postItem(w http.ResponseWriter, r *http.Request) error {
	var req itemRequest
	if err := decode(w, r, largeBody, &req); err != nil {
		return err
	}
	delay, err := milliseconds("delay_ms", req.DelayMS, 0, 0, maxDelay)
	if err == nil && (req.Payload != nil) == (req.Base64 != nil) {
		err = refused{badRequest, "The item must have either payload or payload_base64."}
	}
	if err != nil {
		return err
	}
	opts := []queue.ItemOption{queue.Delay(delay)}
	if req.ID != "" {
		opts = append(opts, queue.ID(req.ID))
	}
	if req.Priority != nil {
		opts = append(opts, queue.Priority(*req.Priority))
	}
	payload := req.Base64
	if payload == nil {
		payload = req.Payload
	}
	item := queue.NewItem(payload, opts...)
	ctx, cancel := calling(r)
	defer cancel()
	var added bool
	err = s.withQueue(ctx, r.PathValue("queue"), func(o *openQueue) (err error) {
		added, err = o.queue.Enqueue(ctx, item)
		return err
	})
	switch {
	case err != nil:
		return err
	case added:
		return answer(w, http.StatusCreated, itemView{item.ID(), true})
	}
	return answer(w, http.StatusOK, itemView{item.ID(), false})
}

type itemsRequest struct {
	Max    int   `json:"max"`
	WaitMS int64 `json:"wait_ms"`
	TTLMS  int64 `json:"ttl_ms"`
}

type deliveryView struct {
	leaseView
	Item        string          `json:"item"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Base64      []byte          `json:"payload_base64"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

type deliveriesView struct {
	Deliveries []deliveryView `json:"deliveries"`
}

// claimItems claims visible items of a queue.
func (s *Server) claimItems(w http.ResponseWriter, r *http.Request) error {
	began := s.clock.Now()
	var req itemsRequest
	if err := decode(w, r, smallBody, &req); err != nil {
		return err
	}
	ttl, err := s.ttl(req.TTLMS)
	if err != nil {
		return err
	}
	wait, err := milliseconds("wait_ms", req.WaitMS, 0, 0, maxWait)
	if err == nil && (req.Max < 0 || req.Max > maxItems) {
		err = refused{badRequest, fmt.Sprintf("max must be from 1 to %d.", maxItems)}
	}
	if err != nil {
		return err
	}
	n := max(req.Max, 1)
	if err := s.leases.reserve(n); err != nil {
		return err
	}
	all, err := s.deliveries(r.Context(), r.PathValue("queue"), n, wait, max(ttl, etcdclaims.MinTTL))
	s.leases.free(n - len(all))
	view := deliveriesView{Deliveries: []deliveryView{}}
	for _, d := range all {
		name := deliveryName(r.PathValue("queue"), d.DeliveryID())
		l := newLease(name, d.DeliveryID(), nil, ttl)
		s.leases.grant(l, d)
		if r.Context().Err() != nil {
			s.leases.end(l, errUnread)
		}
		v := deliveryView{Item: d.ID(), Attempt: d.Attempt(), MaxAttempts: d.MaxAttempts(), Base64: d.Payload()}
		if json.Valid(d.Payload()) {
			v.Payload = d.Payload()
		}
		v.leaseView = s.view(l, began)
		view.Deliveries = append(view.Deliveries, v)
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, view)
}

// deliveries claims up to n items. None and no error mean that none was visible in time.
func (s *Server) deliveries(
	ctx context.Context, name string, n int, wait, ttl time.Duration,
) (all []itemHolding, err error) {
	bounded, cancel := s.waitContext(ctx, wait)
	defer cancel()
	err = s.withQueue(bounded, name, func(o *openQueue) error {
		call := o.queue.TryClaim
		if wait > 0 {
			call = o.queue.Claim
		}
		// Items claimed with one duration share a session.
		batch, err := call(bounded, n, queue.TTL((ttl + time.Second - 1).Truncate(time.Second)))
		s.queues.mu.Lock()
		o.users += len(batch.Deliveries)
		s.queues.mu.Unlock()
		for _, d := range batch.Deliveries {
			all = append(all, itemHolding{d, s.clock, &s.queues, o})
		}
		return err
	})
	if err != nil && wait > 0 && errors.Is(context.Cause(bounded), context.DeadlineExceeded) &&
		s.cfg.Claims.Unreachable() == nil {
		return nil, nil
	}
	if err != nil {
		err = stoppedOr(bounded, err)
	}
	return all, err
}

func deliveryName(queue, id string) string { return "queue/" + queue + "/" + id }
