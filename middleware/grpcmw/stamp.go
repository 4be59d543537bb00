package grpcmw

import (
	"context"
	"errors"
	"io"

	"github.com/etcdclaims/claims/fencing"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// StampConfig says how a client is wrapped.
type StampConfig struct {
	// Select says which methods are wrapped. Default: Services.
	Select func(method string) bool
}

// Stamp sends the token of a call's context as metadata fencing.MetadataKey, for a
// Gate on the other side.
//
// It sends nothing, and returns an error, once the call's context has ended or a claim
// behind it is over by the clock's account: what was late before it was sent need not
// be refused by others. A stream asks that again before each message, and before
// CloseSend, which may be what the server commits at; if the claim is over it is
// aborted, so that the server's side ends too. A call that is under way is cut off by
// the end of its context, as ever.
//
// A context without a token, or with fence 0, adds none: the gate refuses what it
// must. A value that the caller has put into the outgoing metadata goes as it is, in
// place of the context's token: who passes a call on passes its token on, and to wrap
// a client twice sends one value. Use a connection of its own, or Select, for
// those who check tokens: a token is no secret, but its key may be nobody else's
// affair.
//
// Errors keep their gRPC status, for status.FromError and status.Code, and match what
// they mean: a refusal of the other side is a RefusedError; so is what was not sent
// (CLAIM_LOST, or UNAVAILABLE if that has to be found out). An error by the end of the
// context, Canceled or DeadlineExceeded, matches the context's cause and error, which
// gRPC drops: fencing.ErrLost, where the claim was lost. That a call was
// cut off does not say that it was not carried out.
func Stamp(cfg StampConfig) ClientInterceptors {
	s := &stamp{selects: selected(cfg.Select)}
	return ClientInterceptors{Unary: s.unary, Stream: s.stream}
}

type stamp struct{ selects func(method string) bool }

func (s *stamp) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !s.selects(method) {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	ctx, err := stamped(ctx)
	if err != nil {
		return err
	}
	return explain(ctx, invoker(ctx, method, req, reply, cc, opts...))
}

func (s *stamp) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if !s.selects(method) {
		return streamer(ctx, desc, cc, method, opts...)
	}
	ctx, err := stamped(ctx)
	if err != nil {
		return nil, err
	}
	within, abort := context.WithCancelCause(ctx)
	cs, err := streamer(within, desc, cc, method, opts...)
	if err != nil {
		abort(nil)
		return nil, explain(ctx, err)
	}
	return &stampedStream{ClientStream: cs, ctx: ctx, abort: abort, many: desc.ServerStreams}, nil
}

// stamped returns the context to send with, or why nothing may be sent.
func stamped(ctx context.Context) (context.Context, error) {
	if r := mayStill(ctx); r != nil {
		return nil, r
	}
	if err := ctx.Err(); err != nil {
		return nil, explain(ctx, status.FromContextError(err).Err())
	}
	t, _ := fencing.FromContext(ctx)
	if t.IsZero() {
		return ctx, nil
	}
	if sent, ok := metadata.FromOutgoingContext(ctx); ok && len(sent.Get(fencing.MetadataKey)) > 0 {
		return ctx, nil
	}
	text, err := t.MarshalText()
	if err != nil {
		r, _ := fencing.RefusalOf(fencing.ErrMalformed)
		return nil, newRefused(r, fencing.Token{}, err, "It was not sent.")
	}
	return metadata.AppendToOutgoingContext(ctx, fencing.MetadataKey, string(text)), nil
}

// mayStill returns nil if the claims behind ctx are held by the clock's account.
func mayStill(ctx context.Context) *RefusedError {
	err := fencing.Check(ctx)
	if err == nil {
		return nil
	}
	t, _ := fencing.FromContext(ctx)
	return sendRefusal(t, err)
}

// explain returns the error of a call as one that matches what it means.
func explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var done interface{ explained() }
	if errors.As(err, &done) {
		return err // by interceptors further in
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	if r := refusedBy(err, st); r != nil {
		return r
	}
	if code := st.Code(); code == codes.Canceled || code == codes.DeadlineExceeded {
		return ended(ctx, err)
	}
	return err
}

func (*RefusedError) explained() {}
func (*endedError) explained()   {}

// endedError is a call that ended with its context.
type endedError struct {
	got   error // with the status
	cause error
	ctx   error // context.Canceled, or DeadlineExceeded
}

// ended adds to an error why the context ended, if that is known.
func ended(ctx context.Context, got error) error {
	cause := context.Cause(ctx)
	if cause == nil || cause == ctx.Err() { //nolint:errorlint // it is the very one
		return got
	}
	return &endedError{got: got, cause: cause, ctx: ctx.Err()}
}

// Error says both.
func (e *endedError) Error() string { return "grpcmw: " + e.got.Error() + ": " + e.cause.Error() }

// Unwrap returns all that it matches.
func (e *endedError) Unwrap() []error { return []error{e.got, e.cause, e.ctx} }

// GRPCStatus is for package status.
func (e *endedError) GRPCStatus() *status.Status { return status.Convert(e.got) }
