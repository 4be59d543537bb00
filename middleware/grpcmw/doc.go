// Package grpcmw puts claims and fences around gRPC servers and clients, as
// package middleware does with HTTP:
//
//	order := grpcmw.MessageKey(func(_ context.Context, m interface{ GetOrderId() string }) string { return "orders/" + m.GetOrderId() })
//	server := grpc.NewServer(grpcmw.Exclusive(claims, order, grpcmw.ExclusiveConfig{}).Options()...)
//	conn, err := grpc.NewClient(target, append(grpcmw.Stamp(grpcmw.StampConfig{}).Options(), credentials)...)
//	stock := grpc.NewServer(grpcmw.Gate(gate, order, grpcmw.GateConfig{}).Options()...)
//
// The first runs one call per order at a time, in however many processes; the
// second sends the fence along with what such a call asks of others; the third
// refuses there what comes from an owner that is late.
//
// # How it is told
//
// The token is metadata, fencing.MetadataKey. A refusal is a status with a
// google.rpc.ErrorInfo of the domain fencing.ErrorDomain, which clients in any
// language can read, and for what may succeed later a google.rpc.RetryInfo:
//
//	code                reason           metadata                   why
//	FailedPrecondition  STALE_FENCE      key, fence, newest         a newer owner was there
//	InvalidArgument     MISSING_FENCE    key, fence (of another)    no token, or one of another key
//	InvalidArgument     MALFORMED_FENCE                             no token that can be read, or several
//	InvalidArgument     INVALID_KEY                                 the call names no key
//	Aborted             HELD             key, newest, owner, since  another holds the key
//	Aborted             CLAIM_LOST       key, fence                 the claim was lost during the call
//	Unknown             OUTCOME_UNKNOWN  key, fence                 the call may have been carried out
//	Unavailable         UNAVAILABLE      key                        no claim, or no answer of the gate; nothing was done
//	Internal            UNCLAIMED                                   a handler that did not wait for its key
//
// Behind grpc-gateway all that is FailedPrecondition is 400, not 412, and Aborted is
// 409: read the reason. A gateway passes the header Fencing-Token on only if
// its header matcher says so; else it must be sent as Grpc-Metadata-Fencing-Token.
//
// With the interceptors of [Stamp] a refusal is a [*RefusedError], which matches the
// errors of package fencing, and still has its status.
//
// # What is not guaranteed
//
// What package middleware says holds here: a handler may overlap with another's
// for a moment if its process is stopped past the deadline of its claim, and what
// it did without a fence is done. A gate apart from the write is an early reject.
// gRPC may send a request again by itself, by a retry policy, as long as the
// context goes on: that asks the clock only through the end of the context.
//
// # Failing closed
//
// Whatever goes wrong on the way, the handler is not called. A panic, and Goexit,
// in it give the claim up and go on. What a handler returns after its claim was
// lost is not sent as a success.
//
// # Order
//
// Put interceptors that authenticate before these, so that strangers do not raise
// fences or take keys, and those that recover from panics and log around them.
//
// # Concurrency
//
// All that the package returns is safe for concurrent use; streams are as safe as
// those of gRPC: one goroutine may send while another receives.
package grpcmw
