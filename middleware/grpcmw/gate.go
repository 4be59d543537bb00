package grpcmw

import (
	"context"
	"errors"
	"io"

	"github.com/etcdclaims/claims/fencing"
	"google.golang.org/grpc"
)

// Gate calls a handler only for calls that carry a token of their key and that
// gate admits. Stamp sends such a token. The handler's context carries it. Gate
// refuses other calls with a RefusedError,
//
//   - with MISSING_FENCE if there is no token, or one of another key,
//   - with MALFORMED_FENCE if the token cannot be parsed, or there are several,
//   - with STALE_FENCE if a newer token was admitted,
//   - with INVALID_KEY if the key of the call itself is empty or cannot be claimed,
//   - with UNAVAILABLE if the gate fails, or its outcome is unknown.
//
// A gate in front of the handler is an early reject, however it stores fences. A
// call that was admitted may reach its write after a call with a newer fence.
// Check the token again in the transaction of the write (sqlguard, etcdguard,
// objectguard).
//
// # Streams
//
// In a stream, the token is admitted again with every message that is received,
// and at the end of the client's messages. If the server streams, it is also
// admitted before every message that is sent. Once a newer owner has been seen,
// receiving and sending fail, and the handler's context ends. The call ends with
// STALE_FENCE, whatever the handler returns. Every other refusal has the same
// effect. Messages that were admitted before may have been carried out. So if the gate fails
// after the handler was called, the call ends with OUTCOME_UNKNOWN, not with UNAVAILABLE.
//
// If only the client streams, the one reply is sent without asking the gate
// again, as that of a unary call is. A gate that uses a database gets every message;
// put a gate that remembers in memory in front of it if a stream
// is fast.
//
// With a MessageKey, the handler of a stream is called once its token is
// admitted. The key of every message must be that of the token.
//
// Gate panics if gate is nil, if key is the zero Key, or if cfg.Wait is set: it does not wait. In a program without
// etcd leave it out: no fence is sent there.
func Gate(gate fencing.Gate, key Key, cfg Config) ServerInterceptors {
	key.must("Gate")
	if gate == nil {
		panic("grpcmw: Gate needs a gate")
	}
	if cfg.Wait != 0 {
		panic("grpcmw: Gate does not wait: leave Config.Wait at zero")
	}
	cfg.Select = selected(cfg.Select)
	g := &keeper{gate: gate, key: key, cfg: cfg}
	return ServerInterceptors{Unary: g.unary, Stream: g.stream}
}

// keeper wraps handlers with a gate.
type keeper struct {
	gate fencing.Gate
	key  Key
	cfg  Config
}

func (g *keeper) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !g.cfg.Select(info.FullMethod) {
		return handler(ctx, req)
	}
	t, err := tokenOf(ctx)
	key := g.key.of(ctx, info.FullMethod, req)
	if err == nil {
		err = checkToken(t, key)
	}
	if err == nil {
		err = g.gate.Admit(ctx, t)
	}
	if err != nil {
		return nil, refuse(ctx, info.FullMethod, gateRefusal(key, t, err, false), g.cfg.Refuse)
	}
	return handler(fencing.NewContext(ctx, t), req)
}

func (g *keeper) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !g.cfg.Select(info.FullMethod) {
		return handler(srv, ss)
	}
	ctx := ss.Context()
	t, err := tokenOf(ctx)
	key := t.Key // every message must have it
	if g.key.call != nil {
		key = g.key.call(ctx, info.FullMethod)
	}
	if err == nil {
		err = checkToken(t, key)
	}
	if err == nil {
		err = g.gate.Admit(ctx, t)
	}
	if err != nil {
		return refuse(ctx, info.FullMethod, gateRefusal(key, t, err, false), g.cfg.Refuse)
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

// gatedStream is a stream that ends once its token is no longer admitted.
type gatedStream struct {
	grpc.ServerStream
	ctx     context.Context
	end     context.CancelCauseFunc
	keeper  *keeper
	token   fencing.Token
	streams bool // the server streams
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
	key := s.token.Key
	if got == nil && s.keeper.key.message != nil {
		key = s.keeper.key.message(s.ctx, m)
	}
	// Also at the end of the messages: a handler may commit at it.
	if err := s.admit(key); err != nil {
		return err
	}
	return got
}

func (s *gatedStream) SendMsg(m any) error {
	if r := s.refused.get(); r != nil {
		return r
	}
	if s.streams {
		if err := s.admit(s.token.Key); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// admit asks the gate again, if the token is of the key. It ends the stream if
// the token is refused.
func (s *gatedStream) admit(key string) error {
	err := checkToken(s.token, key)
	if err == nil {
		err = s.keeper.gate.Admit(s.ctx, s.token)
	}
	if err == nil {
		return nil
	}
	r := s.refused.set(gateRefusal(key, s.token, err, true))
	s.end(r)
	return r
}
