// Package grpcmw adds claims and fences to gRPC servers and clients, as package
// middleware does for HTTP:
//
//	order := grpcmw.MessageKey(func(_ context.Context, m interface{ GetOrderId() string }) string { return "orders/" + m.GetOrderId() })
//	server := grpc.NewServer(grpcmw.Exclusive(claims, order, grpcmw.Config{}).Options()...)
//	conn, err := grpc.NewClient(target, append(grpcmw.Stamp(nil).Options(), credentials)...)
//	stock := grpc.NewServer(grpcmw.Gate(gate, order, grpcmw.Config{}).Options()...)
//
// [Exclusive] runs one call per order at a time, across all processes. [Stamp]
// sends the fence of such a call along with the calls that it makes. [Gate]
// refuses calls of former owners on the receiving side.
//
// # On the wire
//
// The token is metadata with the key fencing-token. A refusal is a status
// with a google.rpc.ErrorInfo of the domain "etcdclaims", which clients in
// any language can read. If the call may succeed later, the status also has a
// google.rpc.RetryInfo:
//
//	code                reason           metadata                   cause
//	FailedPrecondition  STALE_FENCE      key, fence, newest         a newer owner has been seen
//	InvalidArgument     MISSING_FENCE    key                        no token, or a token of another key
//	InvalidArgument     MALFORMED_FENCE  key                        the token cannot be parsed, or there are several
//	InvalidArgument     INVALID_KEY                                 the call has no valid key
//	Aborted             HELD             key, newest, owner, since  another owner holds the key
//	Aborted             CLAIM_LOST       key, fence                 the claim was lost during the call
//	Unknown             OUTCOME_UNKNOWN  key, fence                 the call may have been carried out
//	Unavailable         UNAVAILABLE      key                        no claim, or the gate failed; the handler was not called
//	Internal            UNCLAIMED                                   a stream's handler acted before it had the message with its key
//
// The key is that of the claim that the call is about. It is missing if it is not
// known, as before the first message of a stream. docs/gates.md describes what to
// do about each reason.
//
// grpc-gateway maps every FailedPrecondition to 400, not 412, and Aborted to 409:
// read the reason. It passes the header Fencing-Token on only if its header
// matcher allows that. Otherwise send Grpc-Metadata-Fencing-Token.
//
// With the interceptors of [Stamp], a refusal is a [*RefusedError]. It matches
// the errors of package fencing, and keeps its status.
//
// # What is not guaranteed
//
// The limits of package middleware apply. If a process is suspended past the deadline of
// its claim, its handler may overlap for a moment with another one. Its effects without
// a fence are not undone. A gate apart from the write is only an
// early reject. By its retry policy, gRPC may send a request again while the
// call's context lasts; only the end of that context stops such repeats.
//
// # Failing closed
//
// If anything goes wrong before the handler is called, it is not called. If the
// handler panics or calls runtime.Goexit, the claim is released, and the panic or
// Goexit continues. What a handler returns after its claim was lost is not sent
// as a success.
//
// # Order
//
// Put interceptors that authenticate before these, so that strangers cannot raise
// fences or take keys. Put interceptors that recover from panics, and that log,
// around them.
//
// # Concurrency
//
// Everything that the package returns is safe for concurrent use. Streams are as
// safe as those of gRPC: one goroutine may send while another receives.
package grpcmw
