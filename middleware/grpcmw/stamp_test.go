package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/middleware/grpcmw"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// sent returns the token's metadata that came with a call.
func sent(ctx context.Context) []string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md.Get(fencing.Header)
}

func TestStamp(t *testing.T) {
	t.Parallel()
	var got []string
	svc := &service{
		unary: func(ctx context.Context, _ *request) (*response, error) { got = sent(ctx); return &response{}, nil },
		chat:  func(stream chatServer) error { got = sent(stream.Context()); return nil },
	}
	twice := append(stamped(), stamped()...)
	tok := token("orders/é", 1234)
	for name, test := range map[string]struct {
		ctx  context.Context
		dial []grpc.DialOption
		want []string
	}{
		"OK":            {fencing.NewContext(t.Context(), tok), stamped(), []string{`1234;key=%"orders/%c3%a9"`}},
		"twice":         {fencing.NewContext(t.Context(), tok), twice, []string{`1234;key=%"orders/%c3%a9"`}},
		"fence 0":       {fencing.NewContext(t.Context(), token("k", 0)), stamped(), nil},
		"none":          {t.Context(), stamped(), nil},
		"the caller's":  {fencing.NewContext(with(t.Context(), `7;key="x"`), tok), stamped(), []string{`7;key="x"`}},
		"beside others": {fencing.NewContext(metadata.AppendToOutgoingContext(t.Context(), "x", "y"), token("k", 5)), stamped(), []string{`5;key="k"`}},
		"not selected":  {fencing.NewContext(t.Context(), tok), grpcmw.Stamp(grpcmw.Methods("/other.Service/")).Options(), nil},
	} {
		c := connect(t, svc, passOn, test.dial...)
		got = nil
		if _, err := c.UnaryCall(test.ctx, ask("")); err != nil || len(got) != len(test.want) || len(got) > 0 && got[0] != test.want[0] {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, test.want)
		}
		got = nil
		chat, err := c.FullDuplexCall(test.ctx)
		if err == nil {
			_, err = chat.Recv()
		}
		if !errors.Is(err, io.EOF) || len(got) != len(test.want) || len(got) > 0 && got[0] != test.want[0] {
			t.Errorf("%s: stream: got %q, %v, want %q", name, got, err, test.want)
		}
	}
}

// untouched is a service that nothing may reach.
func untouched(t *testing.T) *service {
	return &service{
		unary: func(context.Context, *request) (*response, error) { t.Error("it was sent"); return &response{}, nil },
		chat:  func(chatServer) error { t.Error("it was sent"); return nil },
	}
}

func TestStampSendsNothing(t *testing.T) {
	t.Parallel()
	both := func(t *testing.T, ctx context.Context, check func(err error)) {
		t.Helper()
		c := connect(t, untouched(t), passOn, stamped()...)
		_, err := c.UnaryCall(ctx, ask(""))
		check(err)
		_, err = c.FullDuplexCall(ctx)
		check(err)
	}
	for name, lose := range testclaims.Losses {
		inWorld(t, name, func(t *testing.T, w *world) {
			claim, err := w.Claims.TryAcquire(t.Context(), "k", limit(name)...)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := claim.Bind(t.Context())
			defer cancel()
			lose(t, w)
			if name != "asleep" {
				time.Sleep(sec)
			}
			both(t, ctx, func(err error) {
				t.Helper()
				r := refusedAs(t, err, codes.Aborted, "CLAIM_LOST")
				if !errors.Is(err, fencing.ErrLost) || !errors.Is(err, etcdclaims.ErrLost) || r.Fence != claim.Fence() || r.RetryAfter != 0 {
					t.Errorf("got %+v, %v", r, err)
				}
			})
		})
	}
	inWorld(t, "released", func(t *testing.T, w *world) {
		claim, err := w.Claims.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := claim.Bind(t.Context())
		defer cancel()
		if err := claim.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		both(t, ctx, func(err error) {
			t.Helper()
			if status.Code(err) != codes.Aborted || !errors.Is(err, etcdclaims.ErrReleased) {
				t.Errorf("got %v", err)
			}
		})
	})
	inWorld(t, "clock", func(t *testing.T, w *world) {
		claim, err := w.Claims.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := claim.Bind(t.Context())
		defer cancel()
		w.Host.StepClock(time.Hour)
		w.Host.Cut()
		both(t, ctx, func(err error) {
			t.Helper()
			if r := refusedAs(t, err, codes.Unavailable, "UNAVAILABLE"); r.RetryAfter != sec || !errors.Is(err, fencing.ErrUnknown) {
				t.Errorf("got %+v", r)
			}
		})
	})
	ended, cancel := context.WithCancel(fencing.NewContext(t.Context(), token("k", 5)))
	cancel()
	both(t, ended, func(err error) {
		t.Helper()
		if status.Code(err) != codes.Canceled || errors.Is(err, fencing.ErrLost) {
			t.Errorf("got %v", err)
		}
	})
	late, cancel2 := context.WithTimeoutCause(t.Context(), 0, errors.Join(fencing.ErrLost))
	defer cancel2()
	both(t, late, func(err error) {
		t.Helper()
		if status.Code(err) != codes.DeadlineExceeded || !errors.Is(err, fencing.ErrLost) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	both(t, fencing.NewContext(t.Context(), token("a\nb", 5)), func(err error) {
		t.Helper()
		if refusedAs(t, err, codes.InvalidArgument, "MALFORMED_FENCE"); !errors.Is(err, fencing.ErrMalformed) {
			t.Errorf("got %v", err)
		}
	})
}

// A call that is cut off by the loss of the claim says so, which gRPC does not.
func TestStampCutOff(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		came := make(chan error, 10)
		svc := &service{
			unary: func(ctx context.Context, _ *request) (*response, error) {
				came <- nil
				<-ctx.Done()
				return nil, ctx.Err()
			},
			chat: func(stream chatServer) error {
				came <- nil
				_, err := stream.Recv()
				return err
			},
		}
		bare, c := connect(t, svc, passOn), connect(t, svc, passOn, stamped()...)
		for kind, call := range map[string]func(ctx context.Context, c grpc_testing.TestServiceClient) error{
			"unary": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
				_, err := c.UnaryCall(ctx, ask(""))
				return err
			},
			"received": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
				chat, err := c.FullDuplexCall(ctx)
				if err == nil {
					_, err = chat.Recv()
				}
				return err
			},
			"header": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
				chat, err := c.FullDuplexCall(ctx)
				if err == nil {
					_, err = chat.Header()
				}
				if err == nil { // gRPC says it here
					_, err = chat.Recv()
				}
				return err
			},
		} {
			cut := func(c grpc_testing.TestServiceClient, wrap func(error) error) error {
				return w.Claims.TryRun(t.Context(), "k", func(ctx context.Context) error {
					done := make(chan error)
					go func() { done <- call(ctx, c) }()
					<-came
					w.Revoke(t, "k")
					return wrap(<-done)
				})
			}
			var err error
			_ = cut(bare, func(e error) error { err = e; return nil })
			if errors.Is(err, fencing.ErrLost) || status.Code(err) != codes.Canceled {
				t.Errorf("%s: gRPC says %v by itself now", kind, err)
			}
			_ = cut(c, func(e error) error { err = e; return nil })
			var lost *etcdclaims.LostError
			st, ok := status.FromError(err)
			if !ok || st.Code() != codes.Canceled || !errors.Is(err, fencing.ErrLost) || !errors.Is(err, context.Canceled) || !errors.As(err, &lost) {
				t.Errorf("%s: got %v", kind, err)
			}
			if err := cut(c, func(e error) error { return e }); !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("%s: the run ends with %v", kind, err)
			}
		}
	})
}

// An error by the end of the context matches the context's error, whether or not the
// context has a cause of its own.
func TestStampContextEnds(t *testing.T) {
	t.Parallel()
	svc := &service{
		unary: func(ctx context.Context, _ *request) (*response, error) { <-ctx.Done(); return nil, ctx.Err() },
		chat:  func(stream chatServer) error { _, err := stream.Recv(); return err },
	}
	own := errors.New("own")
	for name, end := range map[string]struct {
		of   func(ctx context.Context) (context.Context, context.CancelFunc)
		code codes.Code
		want []error
	}{
		"cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(sec, cancel)
			return ctx, cancel
		}, codes.Canceled, []error{context.Canceled}},
		"cancel with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(sec, func() { cancel(own) })
			return ctx, func() { cancel(nil) }
		}, codes.Canceled, []error{context.Canceled, own}},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, sec)
		}, codes.DeadlineExceeded, []error{context.DeadlineExceeded}},
		"deadline with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, sec, own)
		}, codes.DeadlineExceeded, []error{context.DeadlineExceeded, own}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, svc, passOn, stamped()...)
				check := func(err error) {
					t.Helper()
					for _, want := range end.want {
						if !errors.Is(err, want) {
							t.Errorf("%v does not match %v", err, want)
						}
					}
					if st, ok := status.FromError(err); !ok || st.Code() != end.code || strings.Count(err.Error(), context.Canceled.Error()) > 1 {
						t.Errorf("got %v", err)
					}
				}
				ctx, cancel := end.of(t.Context())
				defer cancel()
				_, err := c.UnaryCall(ctx, ask(""))
				check(err)
				ctx, cancel = end.of(t.Context())
				defer cancel()
				chat, err := c.FullDuplexCall(ctx)
				if err == nil {
					_, err = chat.Recv()
				}
				check(err)
			})
		})
	}
	// A server's own is as it came: the caller's context goes on.
	late := &service{unary: func(context.Context, *request) (*response, error) { return nil, context.DeadlineExceeded }}
	_, err := connect(t, late, passOn, stamped()...).UnaryCall(t.Context(), ask(""))
	if _, plain := err.(interface{ Unwrap() []error }); plain || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %#v", err)
	}
}

// passOn are interceptors of a server that do nothing.
var passOn = grpcmw.ServerInterceptors{
	Unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(ctx, req)
	},
	Stream: func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		return next(srv, s)
	},
}

// A stream sends nothing more once its claim is over, and ends on both sides.
func TestStampStream(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(chat grpc.BidiStreamingClient[order, news]) error{
		"message": func(chat grpc.BidiStreamingClient[order, news]) error { return chat.Send(askFor("2")) },
		"end":     func(chat grpc.BidiStreamingClient[order, news]) error { return chat.CloseSend() },
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			came := make(chan error, 10)
			svc := &service{chat: func(stream chatServer) error {
				for {
					m, err := stream.Recv()
					if err == nil && string(m.GetPayload().GetBody()) != "1" || errors.Is(err, io.EOF) {
						t.Error("it was sent")
					}
					came <- err
					if err != nil {
						return err
					}
				}
			}}
			c := connect(t, svc, passOn, stamped()...)
			claim, err := w.Claims.TryAcquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := claim.Bind(t.Context())
			defer cancel()
			chat, err := c.FullDuplexCall(ctx)
			if err == nil {
				err = chat.Send(askFor("1"))
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := <-came; err != nil {
				t.Fatal(err)
			}
			w.Host.Suspend(time.Minute) // the context has not heard of it yet
			for range 2 {
				refusedAs(t, send(chat), codes.Aborted, "CLAIM_LOST")
			}
			_, err = chat.Recv()
			if refusedAs(t, err, codes.Aborted, "CLAIM_LOST"); !errors.Is(err, fencing.ErrLost) {
				t.Errorf("receiving: %v", err)
			}
			if err := <-came; status.Code(err) != codes.Canceled {
				t.Errorf("the server got %v", err)
			}
		})
	}
}

// It ends on the server's side although the caller's context goes on.
func TestStampStreamAborts(t *testing.T) {
	t.Parallel()
	came := make(chan error, 1)
	svc := &service{chat: func(stream chatServer) error {
		_, err := stream.Recv()
		came <- err
		return err
	}}
	var lost atomic.Bool
	ctx := fencing.WithCheck(t.Context(), func() error {
		if lost.Load() {
			return fencing.ErrLost
		}
		return nil
	})
	chat, err := connect(t, svc, passOn, stamped()...).FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lost.Store(true)
	refusedAs(t, chat.Send(askFor("")), codes.Aborted, "CLAIM_LOST")
	// It may have been aborted before its beginning was sent.
	if chat.Context().Err() == nil {
		t.Error("the stream goes on")
	}
	select {
	case err := <-came:
		if status.Code(err) != codes.Canceled {
			t.Errorf("the server got %v", err)
		}
	case <-time.After(sec):
	}
}

// A stream that is over leaves nothing behind in the context of its caller.
func TestStampStreamLetsGo(t *testing.T) {
	t.Parallel()
	svc := &service{
		watch:  func(_ *order, stream watchServer) error { return stream.Send(&news{}) },
		upload: func(stream uploadServer) error { return stream.SendAndClose(&receipt{}) },
		chat:   func(chatServer) error { return status.Error(codes.NotFound, "no") },
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var within context.Context
	look := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		within = ctx
		return streamer(ctx, desc, cc, method, opts...)
	})
	c := connect(t, svc, passOn, append(stamped(), look)...)
	ended := func(kind string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", kind, err)
		}
		if within.Err() == nil {
			t.Errorf("%s: its context goes on", kind)
		}
	}
	watch, err := c.StreamingOutputCall(ctx, askFor(""))
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil || within.Err() != nil {
		t.Fatal(err, within.Err())
	}
	_, err = watch.Recv()
	ended("watch", err, io.EOF)
	upload, err := c.StreamingInputCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = upload.CloseAndRecv()
	ended("upload", err, nil)
	chat, err := c.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = chat.Recv()
	ended("chat", err, status.Error(codes.NotFound, "no"))
	_, err = c.FullDuplexCall(ctx, grpc.PerRPCCredentials(secure{}))
	if within.Err() == nil || err == nil {
		t.Errorf("a stream that does not begin: %v", err)
	}
}

// secure are credentials that a connection without them refuses.
type secure struct{}

func (secure) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, nil
}
func (secure) RequireTransportSecurity() bool { return true }

// Errors of others go as they are.
func TestStampLeavesErrorsAlone(t *testing.T) {
	t.Parallel()
	plain := status.New(codes.Aborted, "of its own")
	other, err := plain.WithDetails(&errdetails.ErrorInfo{Reason: "HELD", Domain: "example.com"}, &errdetails.RetryInfo{})
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := plain.WithDetails(&errdetails.ErrorInfo{Reason: "NEW", Domain: "etcdclaims", Metadata: map[string]string{"fence": "x", "since": "y"}})
	if err != nil {
		t.Fatal(err)
	}
	var say *status.Status
	svc := &service{unary: func(context.Context, *request) (*response, error) { return nil, say.Err() }}
	c := connect(t, svc, passOn, stamped()...)
	for _, st := range []*status.Status{plain, other, unknown} {
		say = st
		_, err := c.UnaryCall(t.Context(), ask(""))
		if !errors.Is(err, st.Err()) || errors.Is(err, fencing.ErrHeld) {
			t.Errorf("got %v, want %v", err, st)
		}
		var r *grpcmw.RefusedError
		if errors.As(err, &r) != (st == unknown) {
			t.Errorf("got %#v", err)
		}
	}
}

// What gRPC sends again by itself carries the same token, which a gate admits again;
// and it stops with the claim.
func TestStampRetries(t *testing.T) {
	t.Parallel()
	const policy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "10s", "maxBackoff": "10s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
	inWorld(t, "OK", func(t *testing.T, w *world) {
		var tokens []string
		fail := 2
		svc := &service{unary: func(ctx context.Context, _ *request) (*response, error) {
			tokens = append(tokens, sent(ctx)...)
			if len(tokens) <= fail {
				return nil, status.Error(codes.Unavailable, "not yet")
			}
			return &response{}, nil
		}}
		c := connect(t, svc, grpcmw.Gate(new(fencing.Memory), fixed("k"), grpcmw.Config{}), append(stamped(), grpc.WithDefaultServiceConfig(policy))...)
		call := func(ctx context.Context) error { _, err := c.UnaryCall(ctx, ask("")); return err }
		if err := w.Claims.TryRun(t.Context(), "k", call); err != nil || len(tokens) != 3 || tokens[0] != tokens[2] || tokens[0] != tokens[1] {
			t.Errorf("got %q, %v", tokens, err)
		}
		fail = 100
		tokens = nil
		err := w.Claims.TryRun(t.Context(), "k", call, etcdclaims.MaxHold(5*sec))
		if !errors.Is(err, fencing.ErrLost) || len(tokens) != 1 {
			t.Errorf("got %q, %v", tokens, err)
		}
	})
}

// The whole way: a handler under a claim asks a resource behind a gate, is stopped, and
// is late.
func TestOldOwnerIsRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		var gate fencing.Memory
		wrote := 0
		stock := connect(t, &service{unary: func(context.Context, *request) (*response, error) {
			wrote++
			return &response{}, nil
		}}, grpcmw.Gate(&gate, byPayload, grpcmw.Config{}), stamped()...)
		// This one does not ask the clock, as a client in another language may not.
		var naive context.Context
		orders := func(claims *etcdclaims.Client, then func(ctx context.Context)) grpc_testing.TestServiceClient {
			return connect(t, &service{unary: func(ctx context.Context, req *request) (*response, error) {
				if _, err := stock.UnaryCall(ctx, req); err != nil {
					return nil, err
				}
				then(ctx)
				_, err := stock.UnaryCall(ctx, req)
				if errors.Is(err, fencing.ErrLost) { // as it should be: but it goes on
					tok, _ := fencing.FromContext(ctx)
					naive = fencing.NewContext(context.Background(), tok)
					_, err = stock.UnaryCall(naive, req)
				}
				return &response{}, err
			}}, grpcmw.Exclusive(claims, byPayload, grpcmw.Config{Wait: -1}), stamped()...)
		}
		next := orders(w.Other, func(context.Context) {})
		old := orders(w.Claims, func(context.Context) {
			w.Host.Kill()
			if _, err := next.UnaryCall(t.Context(), ask("k")); err != nil {
				t.Errorf("the new owner: %v", err)
			}
		})
		_, err := old.UnaryCall(t.Context(), ask("k"))
		refusedAs(t, err, codes.Aborted, "CLAIM_LOST") // whatever its handler got
		if wrote != 3 {
			t.Errorf("%d writes, want 3", wrote)
		}
		_, err = stock.UnaryCall(naive, ask("k"))
		refusedAs(t, err, codes.FailedPrecondition, "STALE_FENCE")
		if _, err := claimtest.NewClient(t, w.Near, etcdclaims.Config{}).TryAcquire(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
}

// Over a real network, beside a real etcd.
func TestOverTCP(t *testing.T) {
	t.Parallel()
	claims := claimtest.NewClient(t, claimtest.Start(t), etcdclaims.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var gate fencing.Memory
	s := grpc.NewServer(append(grpcmw.Gate(&gate, byPayload, grpcmw.Config{Select: grpcmw.Methods("/grpc.testing.TestService/UnaryCall")}).Options(),
		grpcmw.Exclusive(claims, byPayload, grpcmw.Config{Select: grpcmw.Methods("/grpc.testing.TestService/FullDuplexCall")}).Options()...)...)
	var c grpc_testing.TestServiceClient
	grpc_testing.RegisterTestServiceServer(s, &service{
		unary: func(context.Context, *request) (*response, error) { return &response{}, nil },
		chat: func(stream chatServer) error {
			for {
				if _, err := stream.Recv(); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if _, err := c.UnaryCall(stream.Context(), ask("k")); err != nil {
					return err
				}
				if err := stream.Send(&news{}); err != nil {
					return err
				}
			}
		},
	})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() { s.GracefulStop(); <-served }()
	conn, err := grpc.NewClient(l.Addr().String(), append(stamped(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c = grpc_testing.NewTestServiceClient(conn)
	for range 2 {
		chat, err := c.FullDuplexCall(t.Context())
		for range 5 {
			if err == nil {
				err = chat.Send(askFor("k"))
			}
			if err == nil {
				_, err = chat.Recv()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = chat.CloseSend()
		if _, err := chat.Recv(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
	_, err = c.UnaryCall(fencing.NewContext(t.Context(), token("k", 1)), ask("k"))
	refusedAs(t, err, codes.FailedPrecondition, "STALE_FENCE")
}
