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
	clock clock.Clock
}

// check does not ask whether a verb is under way, as Check does: that verb can be repeated.
func (h itemHolding) check() error { return h.Err() }

func (h itemHolding) left() time.Duration { return h.Remaining(h.clock.Time()) }

// giveUp makes the item visible again. The attempt counts, unless the server stops: the item
// may be what the program died of.
func (h itemHolding) giveUp(ctx context.Context, why error) error {
	if errors.Is(why, errStopped) {
		return h.Release(ctx)
	}
	_, err := h.Fail(ctx, etcdclaims.RetryAfter(fmt.Errorf("the worker is gone: %w", why), 0))
	return err
}

// queues are those that programs have used.
type queues struct {
	mu   sync.Mutex
	open map[string]*openQueue
}

// openQueue is a queue from its first use on.
type openQueue struct {
	ready chan struct{} // closed when queue or err is set
	queue *queue.Queue
	err   error
}

// queue returns the queue of a request, with the configuration that it has, or the default of a new one.
func (s *Server) queue(ctx context.Context, name string) (*queue.Queue, error) {
	s.queues.mu.Lock()
	o := s.queues.open[name]
	switch {
	case o != nil:
	case len(s.queues.open) >= maxQueues:
		s.queues.mu.Unlock()
		return nil, refused{limit, fmt.Sprintf("%d queues are in use.", maxQueues)}
	default:
		o = &openQueue{ready: make(chan struct{})}
		s.queues.open[name] = o
		defer func() {
			if o.err != nil {
				s.forgetQueue(name)
			}
			close(o.ready)
		}()
		s.queues.mu.Unlock()
		o.queue, o.err = queue.Open(ctx, s.cfg.Claims, name)
		if errors.Is(o.err, queue.ErrNotFound) {
			o.queue, o.err = queue.New(s.cfg.Claims, queue.Config{Name: name})
		}
		return o.queue, o.err
	}
	s.queues.mu.Unlock()
	select {
	case <-o.ready:
		return o.queue, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// forgetQueue makes the next request open the queue again.
func (s *Server) forgetQueue(name string) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	delete(s.queues.open, name)
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
	q, err := s.queue(ctx, r.PathValue("queue"))
	if err != nil {
		return err
	}
	added, err := q.Enqueue(ctx, item)
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
		s.leases.grant(l, itemHolding{d, s.clock})
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

// deliveries claims up to n items. None and no error mean that none was visible in time. It
// gives back what it claims for a program that is gone.
func (s *Server) deliveries(
	ctx context.Context, name string, n int, wait, ttl time.Duration,
) ([]*queue.Delivery, error) {
	bounded, cancel := s.waitContext(ctx, wait)
	defer cancel()
	q, err := s.queue(bounded, name)
	if err != nil {
		return nil, err
	}
	call := q.TryClaim
	if wait > 0 {
		call = q.Claim
	}
	batch, err := call(bounded, n, queue.TTL(ttl))
	switch {
	case err == nil && ctx.Err() != nil:
		for _, d := range batch.Deliveries {
			given, cancel := context.WithTimeout(context.Background(), requestTime)
			_ = d.Release(given)
			cancel()
		}
		return nil, context.Cause(ctx)
	case errors.Is(err, queue.ErrConfig):
		s.forgetQueue(name)
	case err != nil && wait > 0 && errors.Is(context.Cause(bounded), context.DeadlineExceeded) &&
		s.cfg.Claims.Unreachable() == nil:
		return nil, nil
	}
	if err != nil {
		return nil, stoppedOr(bounded, err)
	}
	return batch.Deliveries, nil
}

func deliveryName(queue, id string) string { return "queue/" + queue + "/" + id }
