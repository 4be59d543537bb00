package grpcmw

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Config configures Exclusive and Gate. The zero value refuses a call at once if its key is
// held.
type Config struct {
	// Wait is how long a call waits in line for its key. Zero means that it does
	// not wait. A negative value means that it waits as long as its client does.
	// It is of Exclusive only.
	Wait time.Duration
	// Select reports whether a method is guarded. Default: Services.
	Select func(method string) bool
	// Refuse returns the error that a call is refused with. Use it to log or
	// change the refusal, or to answer in another form. If it returns nil, the
	// call is refused with r. Default: r.
	Refuse func(ctx context.Context, method string, r *RefusedError) error
}

// Exclusive runs a handler under a claim on the key of the call: at most one call
// per key at a time, across all processes. The handler's context carries the
// token and ends with the claim.
//
// Exclusive refuses the call with a RefusedError, without calling the handler,
//
//   - with INVALID_KEY if the key is empty or cannot be claimed,
//   - with HELD if the key is still held when Wait elapses; the error has RetryAfter and the holder,
//   - with UNAVAILABLE and RetryAfter if the key cannot be claimed for any other reason.
//
// If the claim is lost before the handler has returned, the call ends with CLAIM_LOST,
// whatever the handler returns. If the loss is not certain, it ends with
// OUTCOME_UNKNOWN. The handler's other effects are not undone: fence them.
//
// The handler's context ends some time before the claim does, so that the handler
// can finish. If it then returns the context's cancellation, the call ends with
// CLAIM_LOST. Canceled would mean that the client has canceled the call.
//
// The key is released when the handler has returned, before the status is sent.
// So a client that calls again after the answer is not refused because of its own
// call. A handler that continues after its context has ended is a zombie: see
// etcdclaims.Client.TryRun.
//
// # Streams
//
// Once the claim is lost, receiving and sending fail, even for messages that have
// already arrived. Receiving fails as soon as the context ends. Do not use a
// message again that was passed to such a failed RecvMsg. Earlier messages were sent
// while the claim was held, judged by the local clock.
//
// As gRPC allows, a goroutine of the handler may receive until the call ends,
// even after the handler has returned. The call ends as the handler returned.
//
// With a MessageKey, the handler of a stream is called before the key is claimed.
// Its first RecvMsg claims the key, and fails if that fails. For a method where
// only the server streams, generated code receives the request before it calls
// the method. Other handlers must receive before they do anything else, and take
// the stream's context after that. Sending before that fails with UNCLAIMED, and
// so does a handler that returns nil before.
//
// Exclusive panics if key is the zero Key. If claims is a passthrough (see
// etcdclaims.NewPassthrough), calls pass unchanged. If claims is nil, or a nil
// *etcdclaims.Client, every call is refused.
func Exclusive(claims middleware.Claims, key Key, cfg Config, opts ...middleware.AcquireOption) ServerInterceptors {
	key.must("Exclusive")
	if passes(claims) {
		return passthroughInterceptors
	}
	cfg.Select = selected(cfg.Select)
	x := &exclusive{key: key, cfg: cfg}
	x.run = middleware.Func(claims, (*claimedCall).keyOf, runClaimed, middleware.FuncConfig{Wait: cfg.Wait}, opts...)
	return ServerInterceptors{Unary: x.unary, Stream: x.stream}
}

// passes reports whether claims is a passthrough. Func then calls the function
// for any key. Otherwise it refuses the empty key before it uses the claims.
func passes(claims middleware.Claims) bool {
	called, _ := middleware.Func(claims,
		func(struct{}) string { return "" },
		func(context.Context, struct{}) (bool, error) { return true, nil },
		middleware.FuncConfig{})(context.Background(), struct{}{})
	return called
}

// exclusive wraps handlers. Only run knows the type of the claims and their
// options.
type exclusive struct {
	run func(context.Context, *claimedCall) (struct{}, error)
	key Key
	cfg Config
}

// claimedCall is a call that runs under a claim on its key.
type claimedCall struct {
	key string
	do  func(ctx context.Context)

	called    bool
	token     fencing.Token
	lost      error // of the claim's check when do returned
	stopCause error // why the claim's context had ended then, if the caller's has not
}

func (c *claimedCall) keyOf() string { return c.key }

// runClaimed calls do under the claim. It never returns an error, so that every error of
// the claims is about this claim; an error of a handler may be about another one.
func runClaimed(ctx context.Context, c *claimedCall) (struct{}, error) {
	c.called = true
	if token, ok := fencing.FromContext(ctx); ok {
		c.token = token
	}
	c.do(ctx)
	c.lost = fencing.Check(ctx)
	if ctx.Err() != nil {
		c.stopCause = context.Cause(ctx)
	}
	return struct{}{}, nil
}

// canceled returns the refusal for a handler that was stopped by the end of the claim's
// context, stopped in time, and returns that it was canceled. Its client has canceled
// nothing.
func (c *claimedCall) canceled(err error) *RefusedError {
	if c.stopCause == nil || !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		return nil
	}
	return claimRefusal(c.token, c.stopCause)
}

// take runs a call under its claim, and returns why its outcome must be replaced.
func (x *exclusive) take(ctx context.Context, c *claimedCall) *RefusedError {
	c.token.Key = c.key
	_, err := x.run(ctx, c)
	switch {
	case c.lost != nil:
		err = c.lost // the first cause
	case err == nil && c.called:
		if ctx.Err() != nil {
			c.stopCause = nil
		}
		return nil
	case err == nil:
		err = &middleware.NotRunError{Key: c.key, Err: errNotCalled}
	}
	return claimRefusal(c.token, err)
}

func (x *exclusive) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if !x.cfg.Select(info.FullMethod) {
		return handler(ctx, req)
	}
	c := &claimedCall{
		key: x.key.of(ctx, info.FullMethod, req),
		do:  func(ctx context.Context) { resp, err = handler(ctx, req) },
	}
	r := x.take(ctx, c)
	if r == nil {
		r = c.canceled(err)
	}
	if r != nil {
		return nil, refuse(ctx, info.FullMethod, r, x.cfg.Refuse)
	}
	return resp, err
}

func (x *exclusive) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if !x.cfg.Select(info.FullMethod) {
		return handler(srv, ss)
	}
	ctx := ss.Context()
	s := &claimedStream{ServerStream: ss, exclusive: x}
	if x.key.call != nil {
		if r := s.begin(x.key.call(ctx, info.FullMethod)); r != nil {
			return refuse(ctx, info.FullMethod, r, x.cfg.Refuse)
		}
	}
	returned := false
	defer func() {
		// This also runs after a panic or Goexit, which then continues.
		if r := s.end(err); r != nil && returned {
			err = refuse(ctx, info.FullMethod, r, x.cfg.Refuse)
		}
	}()
	err = handler(srv, s)
	returned = true
	return err
}
