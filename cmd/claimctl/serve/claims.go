package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/middleware"
	"github.com/google/uuid"
)

const (
	maxWait   = time.Hour   // in line
	leastWait = time.Second // the requests to etcd take time, too
)

// claimHolding is a claim that a program holds.
type claimHolding struct{ *etcdclaims.Claim }

func (h claimHolding) check() error        { return h.Check() }
func (h claimHolding) left() time.Duration { return h.Remaining() }
func (h claimHolding) leave()              {}

// giveUp releases the claim. What is unknown afterwards is freed by the client, or by the end of the lease in etcd.
func (h claimHolding) giveUp(ctx context.Context, _ error) error {
	_ = h.Release(ctx)
	return nil
}

// claimTerms are what a claim is asked for with.
type claimTerms struct {
	Key    string `json:"key"`
	TTLMS  int64  `json:"ttl_ms"`
	Note   string `json:"note"`
	Slots  int    `json:"slots"`
	Shared bool   `json:"shared"`
}

type claimRequest struct {
	claimTerms
	ID     string `json:"id"`
	WaitMS int64  `json:"wait_ms"`
}

// leaseView is what the answers to requests for a lease have in common.
type leaseView struct {
	ID          string `json:"id"`
	Key         string `json:"key"`
	Fence       int64  `json:"fence,string"` // JavaScript cannot represent all of them
	Token       string `json:"token"`
	Held        bool   `json:"held"`
	RemainingMS int64  `json:"remaining_ms"`
	WaitedMS    int64  `json:"waited_ms"`
	Stopping    bool   `json:"stopping,omitempty"`
	Warning     string `json:"warning,omitempty"`
}

type claimView struct {
	leaseView
	Slot int `json:"slot"`
}

// view returns the state of a lease for the answer to a request that arrived at began. What
// remains is read last but for the time that passed.
func (s *Server) view(l *lease, began clock.Reading) leaseView {
	token := l.is.Token()
	v := leaseView{ID: l.id, Key: token.Key, Fence: token.Fence, Token: token.String()}
	if err := s.cfg.Claims.Unreachable(); err != nil {
		v.Warning = fmt.Sprintf("the lease ends when it has no time left, unless etcd answers again: %v", err)
	}
	select {
	case <-s.leases.stopping:
		v.Stopping = true
	default:
	}
	v.WaitedMS = began.Awake().Milliseconds() // by the least of the clocks: programs add it to their deadlines
	v.RemainingMS = s.leases.remaining(l).Milliseconds()
	v.Held = v.RemainingMS > 0
	return v
}

func (s *Server) answerClaim(w http.ResponseWriter, status int, l *lease, began clock.Reading) error {
	return answer(w, status, claimView{s.view(l, began), l.is.(claimHolding).Slot()})
}

// validID is a UUID: programs that choose names could choose the same.
var validID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// postClaim acquires a claim. A request with the id of another one has its answer.
func (s *Server) postClaim(w http.ResponseWriter, r *http.Request) error {
	began := s.clock.Now()
	var req claimRequest
	if err := decode(w, r, smallBody, &req); err != nil {
		return err
	}
	if req.ID == "" {
		req.ID = uuid.NewString()
	}
	ttl, err := s.ttl(req.TTLMS)
	if err != nil {
		return err
	}
	wait, err := milliseconds("wait_ms", req.WaitMS, 0, 0, maxWait)
	switch {
	case err != nil:
		return err
	case !validID.MatchString(req.ID):
		return refused{badRequest, "id must be a UUID."}
	case req.Slots < 0 || req.Slots > etcdclaims.MaxSlots || req.Slots > 0 && req.Shared:
		return refused{badRequest, fmt.Sprintf("slots must be from 1 to %d, and excludes shared.", etcdclaims.MaxSlots)}
	}
	for {
		l, first, err := s.leases.begin("claim/"+req.ID, req.ID, req.claimTerms, ttl)
		if err != nil {
			return err
		}
		if first {
			s.acquire(r.Context(), l, req.claimTerms, wait)
		}
		select {
		case <-l.settled:
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
		switch {
		case l.failed == nil:
			status := http.StatusCreated
			if !first {
				status = http.StatusOK
			}
			if err := s.leases.heartbeat(l); err != nil {
				return err
			}
			return s.answerClaim(w, status, l, began)
		case !l.abandoned || r.Context().Err() != nil:
			return l.failed
		}
	}
}

// acquire acquires the claim of a lease, and settles it. The end of the server ends the waiting.
func (s *Server) acquire(ctx context.Context, l *lease, terms claimTerms, wait time.Duration) {
	opts := []etcdclaims.AcquireOption{etcdclaims.TTL(max(l.ttl, etcdclaims.MinTTL))}
	if terms.Note != "" {
		opts = append(opts, etcdclaims.Note([]byte(terms.Note)))
	}
	if terms.Slots > 0 {
		opts = append(opts, etcdclaims.Slots(terms.Slots))
	}
	if terms.Shared {
		opts = append(opts, etcdclaims.Shared())
	}
	call := s.cfg.Claims.TryAcquire
	if wait > 0 {
		call = s.cfg.Claims.Acquire
	}
	bounded, cancel := s.waitContext(ctx, wait)
	defer cancel()
	claim, err := call(bounded, terms.Key, opts...)
	if err != nil {
		s.leases.fail(l, stoppedOr(bounded, err), ctx.Err() != nil)
		return
	}
	s.leases.grant(l, claimHolding{claim})
}

// waitContext returns a context that ends after wait, which is leastWait at least, or requestTime if
// that is 0, and when the server stops.
func (s *Server) waitContext(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait == 0 {
		wait = requestTime
	}
	wait = max(wait, leastWait)
	ctx, stop := context.WithCancelCause(ctx)
	ctx, cancel := context.WithTimeout(ctx, wait)
	go func() {
		select {
		case <-s.leases.stopping:
			stop(refused{stopping, "Nothing was acquired."})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); stop(nil) }
}

// stoppedOr returns err, or that the server stops if that ended the context of a call.
func stoppedOr(ctx context.Context, err error) error {
	var own refused
	if errors.As(context.Cause(ctx), &own) {
		return own
	}
	return err
}

// claim returns the lease that a request for a claim names.
func (s *Server) claim(r *http.Request) (*lease, error) {
	return s.lease(r, "claim/"+r.PathValue("id"))
}

func (s *Server) getClaim(w http.ResponseWriter, r *http.Request) error {
	began := s.clock.Now()
	l, err := s.claim(r)
	if err != nil {
		return err
	}
	return s.answerClaim(w, http.StatusOK, l, began)
}

func (s *Server) heartbeatClaim(w http.ResponseWriter, r *http.Request) error {
	began := s.clock.Now()
	l, err := s.claim(r)
	if err == nil {
		err = s.leases.heartbeat(l)
	}
	if err != nil {
		return err
	}
	return s.answerClaim(w, http.StatusOK, l, began)
}

// ownsClaim asks etcd whether the claim is still held.
func (s *Server) ownsClaim(w http.ResponseWriter, r *http.Request) error {
	began := s.clock.Now()
	l, err := s.claim(r)
	if err != nil {
		return err
	}
	ctx, cancel := calling(r)
	defer cancel()
	if s.leases.check(l) == nil {
		if _, err := l.is.(claimHolding).Owns(ctx); err != nil && !errors.Is(err, etcdclaims.ErrLost) {
			return err
		}
	}
	return s.answerClaim(w, http.StatusOK, l, began)
}

// deleteClaim releases a claim. Whatever the outcome is, the claim has ended.
func (s *Server) deleteClaim(w http.ResponseWriter, r *http.Request) error {
	l, err := s.claim(r)
	if err != nil {
		return err
	}
	ctx, cancel := calling(r)
	defer cancel()
	const verb = "release"
	_, err = s.leases.finish(ctx, l, verb, func(ctx context.Context) (any, error) {
		err := l.is.(claimHolding).Release(ctx)
		if errors.Is(err, etcdclaims.ErrUnknown) {
			s.leases.end(l, &ended{verb: verb})
		}
		return nil, err
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// watchClaim reports the end of a claim. With hold it releases the claim when the connection is closed.
func (s *Server) watchClaim(w http.ResponseWriter, r *http.Request) error {
	l, err := s.claim(r)
	if err == nil {
		// The body is empty. Once it is read, the server notices when the program is gone.
		err = decode(w, r, smallBody, &struct{}{})
	}
	if err == nil {
		err = s.leases.check(l)
	}
	if err != nil {
		return err
	}
	if r.URL.Query().Get("hold") == "true" {
		defer s.leases.end(l, errClosed)
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	send := func(e watchEvent) error {
		_ = control.SetWriteDeadline(time.Now().Add(bodyTime)) // a program that does not read is stopped
		if err := json.NewEncoder(w).Encode(e); err != nil {
			return err
		}
		return control.Flush()
	}
	stops := s.leases.stopping
	for err := send(watchEvent{Event: "held"}); err == nil; {
		select {
		case <-l.done:
			_ = send(watchEvent{"ended", problem(s.leases.check(l)).Detail})
			return nil
		case <-stops:
			stops, err = nil, send(watchEvent{Event: "stopping"})
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

type watchEvent struct {
	Event string `json:"event"`
	Why   string `json:"why,omitempty"`
}

// admit checks a token that a resource has received.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) error {
	gate := etcdguard.NewGate(s.cfg.Claims.Etcd(), s.cfg.Claims.Prefix())
	refuse := func(w http.ResponseWriter, r *http.Request, p *middleware.Problem) {
		own := problem(p.Err)
		own.Key, own.Fence, own.Newest = p.Key, p.Fence, p.Newest
		own.ServeHTTP(w, r)
	}
	key := func(r *http.Request) string { return r.URL.Query().Get("key") }
	admitted := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	middleware.Gate(gate, key, middleware.Config{Refuse: refuse})(admitted).ServeHTTP(w, r)
	return nil
}
