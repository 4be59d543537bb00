package serve

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

// outcomeView is what became of an item that was not completed.
type outcomeView struct {
	Dead      bool  `json:"dead"`
	Attempts  int   `json:"attempts"`
	VisibleMS int64 `json:"visible_ms"`
}

// delivery returns the lease that a request for an item names.
func (s *Server) delivery(r *http.Request) (*lease, error) {
	return s.lease(r, deliveryName(r.PathValue("queue"), r.PathValue("id")))
}

// verb ends the lease of an item by f.
func (s *Server) verb(
	w http.ResponseWriter, r *http.Request, name string, f func(context.Context, itemHolding) (any, error),
) error {
	l, err := s.delivery(r)
	if err != nil {
		return err
	}
	ctx, cancel := calling(r)
	defer cancel()
	v, err := s.leases.finish(ctx, l, name, func(ctx context.Context) (any, error) { return f(ctx, l.is.(itemHolding)) })
	switch {
	case err != nil:
		return err
	case v == nil:
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return answer(w, http.StatusOK, v)
}

func (s *Server) heartbeatItem(w http.ResponseWriter, r *http.Request) error {
	began := s.clock.Now()
	l, err := s.delivery(r)
	if err == nil {
		err = s.leases.heartbeat(l)
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, s.view(l, began))
}

// completeItem removes an item, together with writes of the program.
func (s *Server) completeItem(w http.ResponseWriter, r *http.Request) error {
	var ws writes
	if err := decode(w, r, largeBody, &ws); err != nil {
		return err
	}
	ops, err := ws.ops(s.cfg.Claims)
	if err != nil {
		return err
	}
	return s.verb(w, r, "complete", func(ctx context.Context, h itemHolding) (any, error) {
		return nil, h.Complete(ctx, ops...)
	})
}

type failRequest struct {
	Error     string `json:"error"`
	Permanent bool   `json:"permanent"`
	RetryMS   *int64 `json:"retry_ms"`
}

// failItem records that the attempt failed.
func (s *Server) failItem(w http.ResponseWriter, r *http.Request) error {
	var req failRequest
	if err := decode(w, r, smallBody, &req); err != nil {
		return err
	}
	cause := errors.New(cmp.Or(req.Error, "no error given"))
	if req.RetryMS != nil {
		retry, err := milliseconds("retry_ms", *req.RetryMS, 0, 0, maxDelay)
		if err != nil {
			return err
		}
		cause = etcdclaims.RetryAfter(cause, retry)
	}
	if req.Permanent {
		cause = etcdclaims.Permanent(cause)
	}
	return s.verb(w, r, "fail", func(ctx context.Context, h itemHolding) (any, error) {
		outcome, err := h.Fail(ctx, cause)
		return s.outcome(outcome), err
	})
}

func (s *Server) outcome(o queue.Outcome) outcomeView {
	v := outcomeView{Dead: o.Dead, Attempts: o.Attempts}
	if !o.Dead {
		v.VisibleMS = max(o.Until.Sub(s.clock.Time()), 0).Milliseconds()
	}
	return v
}

type snoozeRequest struct {
	DelayMS int64 `json:"delay_ms"`
}

// snoozeItem makes the item visible again later. The attempt does not count.
func (s *Server) snoozeItem(w http.ResponseWriter, r *http.Request) error {
	var req snoozeRequest
	if err := decode(w, r, smallBody, &req); err != nil {
		return err
	}
	delay, err := milliseconds("delay_ms", req.DelayMS, 0, time.Millisecond, maxDelay)
	if err != nil {
		return err
	}
	return s.verb(w, r, "snooze", func(ctx context.Context, h itemHolding) (any, error) {
		_, err := h.Snooze(ctx, delay)
		return nil, err
	})
}

// releaseItem gives an item back. The attempt does not count.
func (s *Server) releaseItem(w http.ResponseWriter, r *http.Request) error {
	return s.verb(w, r, "release", func(ctx context.Context, h itemHolding) (any, error) { return nil, h.Release(ctx) })
}
