package grpcmw

import (
	"context"
	"errors"
	"io"

	"github.com/etcdclaims/claims/fencing"
	"google.golang.org/grpc"
)

// GateConfig says how a resource is wrapped.
type GateConfig struct {
	// Select says which methods are wrapped. Default: Services.
	Select func(method string) bool
	// Refuse makes the error that a call is refused with, to log it, to change
	// it, or to answer in another form. It must not be nil; if it is, the
	// RefusedError goes. Default: the RefusedError.
	Refuse func(ctx context.Context, method string, r *RefusedError) error
}

// Gate admits to a handler what carries a token of the call's key that the gate
// admits: Stamp sends it. The handler's context carries the token. Others are
// refused with a RefusedError, and the handler is not called: without a token, or
// with one of another key (MISSING_FENCE); with a token that is not one, or several
// (MALFORMED_FENCE); with one that is older than one that was admitted
// (STALE_FENCE); if the gate has no answer, or the outcome is unknown
// (UNAVAILABLE); and if the call's own key is empty or no key (INVALID_KEY).
//
// In a stream the token is admitted again with every message that is received, with
// the end of the client's messages, and, if the server streams, before every message
// that is sent: once a newer owner was there, receiving and sending fail, the
// handler's context ends, and the call ends with STALE_FENCE whatever the handler
// returns. The same goes for every other refusal. What was admitted before may have
// been carried out. The one reply of a client's stream is sent as that of a unary
// call is: after the work, without asking again. A gate that asks a database is asked
// that often: for a quick stream let another remember for it.
//
// With a MessageKey, the handler of a stream is called when its token is admitted,
// and every message is compared with the key of that.
//
// A gate that stands before the handler is an early reject, however it remembers
// fences: a call that was admitted may come to its write after one with a newer
// fence. What must not happen has to be refused by the write itself: check the
// token there again, in the same transaction (sqlguard, etcdguard, objectguard).
//
// Gate panics if key is the zero Key. With a nil gate calls pass as they are.
func Gate(gate fencing.Gate, key Key, cfg GateConfig) ServerInterceptors {
	key.must("Gate")
	if gate == nil {
		return passOn
	}
	cfg.Select = selected(cfg.Select)
	g := &keeper{gate: gate, key: key, cfg: cfg}
	return ServerInterceptors{Unary: g.unary, Stream: g.stream}
}

// keeper keeps a gate.
type keeper struct {
	gate fencing.Gate
	key  Key
	cfg  GateConfig
}

func (g *keeper) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !g.cfg.Select(info.FullMethod) {
		return handler(ctx, req)
	}
	t, err := tokenOf(ctx)
	if err == nil {
		err = checkToken(t, g.key.of(ctx, info.FullMethod, req))
	}
	if err == nil {
		err = g.gate.Admit(ctx, t)
	}
	if err != nil {
		return nil, refuse(ctx, info.FullMethod, gateRefusal(t, err), g.cfg.Refuse)
	}
	return handler(fencing.NewContext(ctx, t), req)
}

func (g *keeper) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !g.cfg.Select(info.FullMethod) {
		return handler(srv, ss)
	}
	ctx := ss.Context()
	t, err := tokenOf(ctx)
	if err == nil && g.key.call != nil {
		err = checkToken(t, g.key.call(ctx, info.FullMethod))
	}
	if err == nil {
		err = g.gate.Admit(ctx, t)
	}
	if err != nil {
		return refuse(ctx, info.FullMethod, gateRefusal(t, err), g.cfg.Refuse)
	}
	inside, end := context.WithCancelCause(fencing.NewContext(ctx, t))
	defer end(nil)
	s := &gatedStream{ServerStream: ss, ctx: inside, end: end, keeper: g, token: t, streams: info.IsServerStream}
	err = handler(srv, s)
	if r := s.refused.get(); r != nil {
		return refuse(ctx, info.FullMethod, r, g.cfg.Refuse)
	}
	return err
}

// gatedStream is a stream that ends when its token is not admitted any more.
type gatedStream struct {
	grpc.ServerStream
	ctx     context.Context
	end     context.CancelCauseFunc
	keeper  *keeper
	token   fencing.Token
	streams bool // the server does
	refused refused
}

func (s *gatedStream) Context() context.Context { return s.ctx }

func (s *gatedStream) RecvMsg(m any) error {
	if r := s.refused.get(); r != nil {
		return r
	}
	got := s.ServerStream.RecvMsg(m)
	if got != nil && !errors.Is(got, io.EOF) {
		return got
	}
	var err error
	if got == nil && s.keeper.key.message != nil {
		err = checkToken(s.token, s.keeper.key.message(s.ctx, m))
	}
	// At the end of the messages, too: it may be what a handler commits at.
	if err := s.admit(err); err != nil {
		return err
	}
	return got
}

func (s *gatedStream) SendMsg(m any) error {
	if r := s.refused.get(); r != nil {
		return r
	}
	if s.streams {
		if err := s.admit(nil); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// admit asks the gate again, unless something is wrong already, and ends the stream
// if it is refused.
func (s *gatedStream) admit(err error) error {
	if err == nil {
		err = s.keeper.gate.Admit(s.ctx, s.token)
	}
	if err == nil {
		return nil
	}
	r := s.refused.set(gateRefusal(s.token, err))
	s.end(r)
	return r
}
