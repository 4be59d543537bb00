package grpcmw

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Stamp returns client interceptors that send the token of a call's context as
// metadata fencing-token, for a Gate on the receiving side. They send it to the methods
// for which methods returns true; nil means Services.
//
// If the call's context has ended, or a claim behind it is over by the local
// clock, the interceptors send nothing and return an error. A stream checks that
// again before each message, and before CloseSend, at which the server may
// commit. If the claim is over, the stream is aborted, so that the server's side
// ends too. A call that is under way is canceled when its context ends, as usual.
//
// If the context has no token, or a token with fence 0, no metadata is added. If
// the caller has put a token into the outgoing metadata, it is sent unchanged: a
// proxy passes on the token that it received, and a client that is wrapped twice
// sends one value. A token is not a secret, but its key may be confidential. So
// use a separate connection, or methods, for servers that check tokens.
//
// Errors keep their gRPC status for status.FromError and status.Code. A refusal
// of the server is a RefusedError. So is a call that was not sent: CLAIM_LOST, or
// UNAVAILABLE if the loss is not certain. If the call ended with its context, the
// error also matches the context's error and its cause, such as fencing.ErrLost;
// gRPC itself drops the cause. Such a call may have been carried out.
func Stamp(methods func(method string) bool) ClientInterceptors {
	s := &stamp{selects: selected(methods)}
	return ClientInterceptors{Unary: s.unary, Stream: s.stream}
}

type stamp struct{ selects func(method string) bool }

func (s *stamp) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if !s.selects(method) {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	ctx, err := stamped(ctx)
	if err != nil {
		return err
	}
	return explain(ctx, invoker(ctx, method, req, reply, cc, opts...))
}

func (s *stamp) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
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
	if sent, ok := metadata.FromOutgoingContext(ctx); ok && len(sent.Get(metadataKey)) > 0 {
		return ctx, nil
	}
	text, err := t.MarshalText()
	if err != nil {
		r, _ := fencing.RefusalOf(fencing.ErrMalformed)
		return nil, newRefused(r, fencing.Token{}, err, "It was not sent.")
	}
	return metadata.AppendToOutgoingContext(ctx, metadataKey, string(text)), nil
}

// mayStill returns nil if the claims behind ctx are held, judged by the local
// clock.
func mayStill(ctx context.Context) *RefusedError {
	err := fencing.Check(ctx)
	if err == nil {
		return nil
	}
	t, _ := fencing.FromContext(ctx)
	return sendRefusal(t, err)
}

// explain returns the error of a call so that it matches its meaning.
func explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	var done interface{ explained() }
	if errors.As(err, &done) {
		return err // explained by an inner interceptor
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

// endedError is the error of a call that ended with its context.
type endedError struct {
	got   error // with the status
	cause error
	ctx   error // context.Canceled, or DeadlineExceeded
}

// late is how long ended waits for a context to notice that its deadline has passed.
const late = 10 * time.Millisecond

// ended adds the cause to an error if the context has ended. The server, or gRPC, may
// notice a deadline just before the context does, which alone knows its cause.
func ended(ctx context.Context, got error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		notice := time.NewTimer(late)
		defer notice.Stop()
		select {
		case <-ctx.Done():
		case <-notice.C:
		}
	}
	if ctx.Err() == nil {
		return got // the server's own error
	}
	return &endedError{got: got, cause: context.Cause(ctx), ctx: ctx.Err()}
}

// Error returns the status, which includes the context's error, and the cause.
func (e *endedError) Error() string {
	if e.cause == e.ctx { //nolint:errorlint // context.Cause returns this very value
		return e.got.Error()
	}
	return e.got.Error() + ": " + e.cause.Error()
}

// Unwrap returns every error that it matches.
func (e *endedError) Unwrap() []error { return []error{e.got, e.cause, e.ctx} }

// GRPCStatus returns the status. Package status uses it.
func (e *endedError) GRPCStatus() *status.Status { return status.Convert(e.got) }
