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

// lookAgain is how often a stream that waits checks whether its claim is still
// held, once the claim's context has ended.
const lookAgain = 100 * time.Millisecond

// claimedStream is a stream that stops once its claim is over. The key is claimed
// in the middle of the call, but claims run a function under a claim. So that
// function runs in its own goroutine, and waits there for the handler to return.
type claimedStream struct {
	grpc.ServerStream
	exclusive *exclusive
	refused   refused

	received error // why no more is received

	mu       sync.Mutex
	returned bool            // the handler has returned; its goroutines no longer matter
	ctx      context.Context // of the claim, nil until the key is claimed
	call     *claimedCall
	over     chan struct{} // closed when the handler has returned
	released <-chan result[*RefusedError]
}

// begin claims the key.
func (s *claimedStream) begin(key string) *RefusedError {
	begun := make(chan context.Context, 1)
	over := make(chan struct{})
	c := &claimedCall{key: key, do: func(ctx context.Context) {
		begun <- ctx
		<-over
	}}
	released := apart(func() *RefusedError { return s.exclusive.take(s.ServerStream.Context(), c) })
	select {
	case ctx := <-begun:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.returned { // begin ran in a goroutine of the handler: nothing would release the claim
			close(over)
			return newRefused(unclaimed, fencing.Token{}, nil, "")
		}
		s.ctx, s.call, s.over, s.released = ctx, c, over, released
		return nil
	case r := <-released:
		return s.refuse(r.get())
	}
}

// refuse ends the call with the first refusal. gRPC allows a goroutine of the
// handler to receive until the call ends. Once the handler has returned, the
// claim is released for that reason, and such a goroutine finds it over. Then the
// call ends as the handler returned, so refuse no longer ends it.
func (s *claimedStream) refuse(r *RefusedError) *RefusedError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.returned {
		return r
	}
	return s.refused.set(r)
}

// end releases the claim, and returns why the call must not end with err.
func (s *claimedStream) end(err error) *RefusedError {
	s.mu.Lock()
	s.returned = true
	released := s.released
	s.mu.Unlock()
	var r *RefusedError
	switch {
	case released != nil:
		close(s.over)
		done := <-released
		if r = done.get(); r == nil {
			r = s.call.canceled(err)
		}
	case err == nil:
		r = newRefused(unclaimed, fencing.Token{}, nil, "")
	}
	if r == nil {
		return s.refused.get()
	}
	return s.refused.set(r)
}

// Context returns the context of the claim, or that of the call until the key is
// claimed.
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

// may returns nil if the stream may continue, judged by the local clock.
func (s *claimedStream) may(ctx context.Context) error {
	if r := s.refused.get(); r != nil {
		return r
	}
	err := fencing.Check(ctx)
	if err == nil {
		return nil
	}
	t, _ := fencing.FromContext(ctx)
	return s.refuse(claimRefusal(t, err))
}

// sendable returns the claim's context if messages may be sent.
func (s *claimedStream) sendable() (context.Context, error) {
	ctx := s.claim()
	if ctx == nil {
		if r := s.refused.get(); r != nil {
			return nil, r
		}
		return nil, s.refuse(newRefused(unclaimed, fencing.Token{}, nil, ""))
	}
	return ctx, s.may(ctx)
}

// SendHeader sends nothing before the key is claimed, or after the claim is over.
func (s *claimedStream) SendHeader(md metadata.MD) error {
	if _, err := s.sendable(); err != nil {
		return err
	}
	return s.ServerStream.SendHeader(md)
}

// RecvMsg stops waiting for the client when the claim's context ends. gRPC's own
// RecvMsg waits until the context of the call ends.
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
		// The end of the stream counts as a message: a handler may commit at it.
		if err := s.may(ctx); err != nil {
			s.received = err
		} else if s.received == nil {
			s.received = s.sameKey(ctx, m)
		}
	case <-ctx.Done():
		// A message that arrives later is lost. Keep the error, so that the handler
		// does not treat a further message as the next one.
		if s.received = s.may(ctx); s.received == nil {
			s.received = s.stopCause(ctx)
		}
	}
	return s.received
}

// stopCause returns why the context of a claim has ended that is still held.
func (s *claimedStream) stopCause(ctx context.Context) error {
	if err := s.ServerStream.Context().Err(); err != nil {
		return status.FromContextError(err).Err() // as gRPC does
	}
	t, _ := fencing.FromContext(ctx)
	return claimRefusal(t, context.Cause(ctx))
}

// first receives the first message, which names the key, and claims the key.
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
		return s.refuse(keyInvalid(fmt.Errorf("%w: the call has no message", middleware.ErrInvalidKey), nothingDone))
	default:
		return err
	}
}

// sameKey refuses a message with another key than the first message.
func (s *claimedStream) sameKey(ctx context.Context, m any) error {
	if s.exclusive.key.message == nil {
		return nil
	}
	if key := s.exclusive.key.message(ctx, m); key != s.call.key {
		err := fmt.Errorf("%w: the first message has key %.80q, a later one %.80q",
			middleware.ErrInvalidKey, s.call.key, key)
		return s.refuse(keyInvalid(err, perhapsDone))
	}
	return nil
}

// SendMsg waits for the client only while the claim is held.
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
	// The claim is still held for some time: keep sending.
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
