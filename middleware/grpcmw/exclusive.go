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

// ExclusiveConfig says how a handler is wrapped. The zero value refuses a call at
// once whose key is held.
type ExclusiveConfig struct {
	// Wait is how long a call may wait in line for its key. 0: not at all.
	// Negative: as long as its client does.
	Wait time.Duration
	// Select says which methods are wrapped. Default: Services.
	Select func(method string) bool
	// Refuse makes the error that a call is refused with, to log it, to change
	// it, or to answer in another form. It must not be nil; if it is, the
	// RefusedError goes. Default: the RefusedError.
	Refuse func(ctx context.Context, method string, r *RefusedError) error
}

// Exclusive runs a handler under a claim on the key of the call: at most one call
// per key at a time, in all processes. The handler's context carries the token and
// ends with the claim.
//
// The handler is not called, and the call is refused with a RefusedError: if the key
// is empty or cannot be claimed (INVALID_KEY); if another holds it, and went on to
// for all of the Wait (HELD, with RetryAfter, and who it is); if the claim cannot be
// had for any other reason (UNAVAILABLE, with RetryAfter).
//
// If the claim is lost before the handler has returned the call ends with CLAIM_LOST,
// or OUTCOME_UNKNOWN if that is not known, whatever the handler returns. In a stream
// receiving and sending fail from then on, also what waits for the client already;
// receiving fails as soon as the context ends, a drain before the claim does; do not
// use a message again that was to be received then. What was sent before was sent
// under the claim, by the clock's account. But what the handler did, it did: to be
// protected it must be fenced. A handler that was told to stop, and passes that on in
// time, ends the call with CLAIM_LOST too, and not with Canceled: that would say that
// the client had left.
//
// The key is given up when the handler has returned, before the status is sent: who
// gets the answer and asks again is not refused because of itself. A handler that
// goes on though its context has ended is a zombie: see etcdclaims.Client.TryRun.
//
// With a MessageKey, the handler of a stream is called before the key is claimed: that
// is done within its first RecvMsg, which fails if it cannot be. Generated code receives
// the one request of a method whose server streams before it calls the method; the
// handlers of other streams must receive before anything else, and take the stream's
// context after that. What they send before fails (UNCLAIMED), and so does a handler
// that returns nil before.
//
// Exclusive panics if key is the zero Key. With claims that are nil or a passthrough
// calls pass as they are.
func Exclusive[O any](claims middleware.Claims[O], key Key, cfg ExclusiveConfig, opts ...O) ServerInterceptors {
	key.must("Exclusive")
	if passes(claims) {
		return passOn
	}
	cfg.Select = selected(cfg.Select)
	x := &exclusive{key: key, cfg: cfg}
	x.run = middleware.Func(claims, (*turn).of, runTurn, middleware.FuncConfig{Wait: cfg.Wait}, opts...)
	return ServerInterceptors{Unary: x.unary, Stream: x.stream}
}

// passes reports whether claims let everything through: Func then calls the function
// for any key, and else refuses an empty one before it asks the claims.
func passes[O any](claims middleware.Claims[O]) bool {
	called, _ := middleware.Func(claims,
		func(struct{}) string { return "" },
		func(context.Context, struct{}) (bool, error) { return true, nil },
		middleware.FuncConfig{})(context.Background(), struct{}{})
	return called
}

// exclusive wraps handlers. What claims they are, and with which options, only run
// knows.
type exclusive struct {
	run func(context.Context, *turn) (struct{}, error)
	key Key
	cfg ExclusiveConfig
}

// turn is what happens under a claim on a key.
type turn struct {
	key string
	do  func(ctx context.Context)

	called bool
	token  fencing.Token
	lost   error // as do returned
	told   error // why its context had ended then, if its caller's goes on
}

func (t *turn) of() string { return t.key }

// runTurn never fails, so that every error beside is about this claim: that of a handler
// may be about another.
func runTurn(ctx context.Context, t *turn) (struct{}, error) {
	t.called = true
	if token, ok := fencing.FromContext(ctx); ok {
		t.token = token
	}
	t.do(ctx)
	t.lost = fencing.Check(ctx)
	if ctx.Err() != nil {
		t.told = context.Cause(ctx)
	}
	return struct{}{}, nil
}

// cancelled returns what the error of a handler stands for that was told to stop,
// stopped in time, and passes on that its context has ended: its client has cancelled
// nothing.
func (t *turn) cancelled(err error) *RefusedError {
	if t.told == nil || !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		return nil
	}
	return claimRefusal(t.token, t.told)
}

// take runs a turn, and returns why what came of it must not stand.
func (x *exclusive) take(ctx context.Context, t *turn) *RefusedError {
	t.token.Key = t.key
	_, err := x.run(ctx, t)
	switch {
	case t.lost != nil:
		err = t.lost // what came first
	case err == nil && t.called:
		if ctx.Err() != nil {
			t.told = nil
		}
		return nil
	case err == nil:
		err = &middleware.NotRunError{Key: t.key, Err: errNotCalled}
	}
	return claimRefusal(t.token, err)
}

func (x *exclusive) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if !x.cfg.Select(info.FullMethod) {
		return handler(ctx, req)
	}
	t := &turn{
		key: x.key.of(ctx, info.FullMethod, req),
		do:  func(ctx context.Context) { resp, err = handler(ctx, req) },
	}
	r := x.take(ctx, t)
	if r == nil {
		r = t.cancelled(err)
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
		// Here too after a panic or Goexit, which then go on.
		if r := s.end(err); r != nil && returned {
			err = refuse(ctx, info.FullMethod, r, x.cfg.Refuse)
		}
	}()
	err = handler(srv, s)
	returned = true
	return err
}
