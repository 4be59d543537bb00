package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// lookAgain is how often it is asked whether a claim is held yet, once its context
// has ended and something is waited for.
const lookAgain = 100 * time.Millisecond

// claimedStream is a stream of which nothing goes on once its claim is over. The
// claim is taken in the middle of the call, by functions that run something under a
// claim: these run beside it, and wait for the handler.
type claimedStream struct {
	grpc.ServerStream
	exclusive *exclusive
	refused   refused

	received error // why no more is received

	mu       sync.Mutex
	returned bool            // the handler has
	ctx      context.Context // the claim's, nil before it
	turn     *turn
	over     chan struct{} // close it when the handler has returned
	given    <-chan result[*RefusedError]
}

// begin claims the key.
func (s *claimedStream) begin(key string) *RefusedError {
	begun := make(chan context.Context, 1)
	over := make(chan struct{})
	t := &turn{key: key, do: func(ctx context.Context) {
		begun <- ctx
		<-over
	}}
	given := apart(func() *RefusedError { return s.exclusive.take(s.ServerStream.Context(), t) })
	select {
	case ctx := <-begun:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.returned { // it receives in another goroutine: nobody would end the turn
			close(over)
			return s.refused.set(newRefused(unclaimed, fencing.Token{}, nil, ""))
		}
		s.ctx, s.turn, s.over, s.given = ctx, t, over, given
		return nil
	case r := <-given:
		return s.refused.set(r.get())
	}
}

// end gives the claim up, and returns why the call must not end with err.
func (s *claimedStream) end(err error) *RefusedError {
	s.mu.Lock()
	s.returned = true
	given := s.given
	s.mu.Unlock()
	var r *RefusedError
	switch {
	case given != nil:
		close(s.over)
		done := <-given
		if r = done.get(); r == nil {
			r = s.turn.cancelled(err)
		}
	case err == nil:
		r = newRefused(unclaimed, fencing.Token{}, nil, "")
	}
	if r == nil {
		return s.refused.get()
	}
	return s.refused.set(r)
}

// Context returns that of the claim, and before there is one that of the call.
func (s *claimedStream) Context() context.Context {
	if ctx := s.claim(); ctx != nil {
		return ctx
	}
	return s.ServerStream.Context()
}

func (s *claimedStream) claim() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx
}

// may returns nil if the stream may go on, by the clock's account.
func (s *claimedStream) may(ctx context.Context) error {
	if r := s.refused.get(); r != nil {
		return r
	}
	err := fencing.Check(ctx)
	if err == nil {
		return nil
	}
	t, _ := fencing.FromContext(ctx)
	return s.refused.set(claimRefusal(t, err))
}

// sendable returns the claim's context if something may be sent.
func (s *claimedStream) sendable() (context.Context, error) {
	ctx := s.claim()
	if ctx == nil {
		if r := s.refused.get(); r != nil {
			return nil, r
		}
		return nil, s.refused.set(newRefused(unclaimed, fencing.Token{}, nil, ""))
	}
	return ctx, s.may(ctx)
}

// SendHeader sends nothing before there is a claim, nor after.
func (s *claimedStream) SendHeader(md metadata.MD) error {
	if _, err := s.sendable(); err != nil {
		return err
	}
	return s.ServerStream.SendHeader(md)
}

// RecvMsg does not wait longer for the client than the claim's context lasts: gRPC's
// own is bound to the context of the call.
func (s *claimedStream) RecvMsg(m any) error {
	if s.received != nil {
		return s.received
	}
	ctx := s.claim()
	if ctx == nil {
		s.received = s.first(m)
		return s.received
	}
	if s.received = s.may(ctx); s.received != nil {
		return s.received
	}
	next := apart(func() error { return s.ServerStream.RecvMsg(m) })
	select {
	case got := <-next:
		s.received = got.get()
		// Its end counts as a message does: it may be what a handler commits at.
		if err := s.may(ctx); err != nil {
			s.received = err
		} else if s.received == nil {
			s.received = s.sameKey(ctx, m)
		}
	case <-ctx.Done():
		// What comes yet is lost: it must not be taken for the next.
		if s.received = s.may(ctx); s.received == nil {
			s.received = s.toldToStop(ctx)
		}
	}
	return s.received
}

// toldToStop says why the context has ended of a claim that is held yet.
func (s *claimedStream) toldToStop(ctx context.Context) error {
	if err := s.ServerStream.Context().Err(); err != nil {
		return status.FromContextError(err).Err() // as gRPC has it
	}
	t, _ := fencing.FromContext(ctx)
	return claimRefusal(t, context.Cause(ctx))
}

// first receives the message that names the key, and claims it.
func (s *claimedStream) first(m any) error {
	if r := s.refused.get(); r != nil {
		return r
	}
	ctx := s.ServerStream.Context()
	switch err := s.ServerStream.RecvMsg(m); {
	case err == nil:
		if r := s.begin(s.exclusive.key.message(ctx, m)); r != nil {
			return r
		}
		return nil
	case errors.Is(err, io.EOF):
		return s.refused.set(keyInvalid(fmt.Errorf("%w: the call has no message", middleware.ErrInvalidKey)))
	default:
		return err
	}
}

// sameKey refuses a message that is about another key than the first.
func (s *claimedStream) sameKey(ctx context.Context, m any) error {
	if s.exclusive.key.message == nil {
		return nil
	}
	if key := s.exclusive.key.message(ctx, m); key != s.turn.key {
		return s.refused.set(keyInvalid(fmt.Errorf("%w: the call began with key %.80q, and a message names %.80q", middleware.ErrInvalidKey, s.turn.key, key)))
	}
	return nil
}

// SendMsg does not wait longer for the client than the claim is held.
func (s *claimedStream) SendMsg(m any) error {
	ctx, err := s.sendable()
	if err != nil {
		return err
	}
	sent := apart(func() error { return s.ServerStream.SendMsg(m) })
	select {
	case done := <-sent:
		return done.get()
	case <-ctx.Done():
	}
	// It has a drain yet in which to send.
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		select {
		case done := <-sent:
			return done.get()
		case <-again.C:
			if err := s.may(ctx); err != nil {
				return err
			}
		}
	}
}
