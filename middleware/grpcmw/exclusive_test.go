package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/grpcmw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// exclusive serves with claims, to a stamped client.
func exclusive(t *testing.T, claims *etcdclaims.Client, svc *service, cfg grpcmw.Config, opts ...etcdclaims.AcquireOption) grpc_testing.TestServiceClient {
	t.Helper()
	return connect(t, svc, grpcmw.Exclusive(claims, byPayload, cfg, opts...), stamped()...)
}

// never is a service whose handlers must not be called.
func never(t *testing.T) *service {
	return &service{unary: func(context.Context, *request) (*response, error) {
		t.Error("the handler runs")
		return &response{}, nil
	}}
}

func TestExclusiveRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		own := status.Error(codes.NotFound, "of its own")
		svc := &service{unary: func(ctx context.Context, req *request) (*response, error) {
			token, ok := fencing.FromContext(ctx)
			info, err := w.Other.Lookup(ctx, "k")
			if !ok || err != nil || info.Fence != token.Fence || token.Key != "k" {
				t.Errorf("token %v, %v; held: %+v, %v", token, ok, info, err)
			}
			if err := fencing.Check(ctx); err != nil {
				t.Errorf("Check: %v", err)
			}
			if req.GetFillUsername() {
				return nil, own
			}
			return &response{Username: "made"}, nil
		}}
		c := exclusive(t, w.Claims, svc, grpcmw.Config{}, etcdclaims.MaxHold(time.Minute))
		for range 2 {
			resp, err := c.UnaryCall(t.Context(), ask("k"))
			if err != nil || resp.GetUsername() != "made" {
				t.Errorf("got %v, %v", resp, err)
			}
			w.Free(t, "k")
		}
		if _, err := c.UnaryCall(t.Context(), &request{Payload: payload("k"), FillUsername: true}); !errors.Is(err, own) {
			t.Errorf("got %v", err)
		}
	})
}

func TestExclusiveRefuses(t *testing.T) {
	t.Parallel()
	inWorld(t, "held", func(t *testing.T, w *world) {
		claim, err := w.Other.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{0, 5 * sec} {
			began := time.Now()
			_, err := exclusive(t, w.Claims, never(t), grpcmw.Config{Wait: wait}).UnaryCall(t.Context(), ask("k"))
			if took := time.Since(began); took < wait || took > wait+sec {
				t.Errorf("refused after %v, want %v", took, wait)
			}
			r := refusedAs(t, err, codes.Aborted, "HELD")
			if r.Owner != "there" || r.Newest != claim.Fence() || r.Key != "k" || r.Since.IsZero() || r.RetryAfter != sec {
				t.Errorf("got %+v", r)
			}
			if !errors.Is(err, fencing.ErrHeld) {
				t.Errorf("%v is not ErrHeld", err)
			}
		}
	})
	inWorld(t, "key", func(t *testing.T, w *world) {
		c := exclusive(t, w.Claims, never(t), grpcmw.Config{})
		for _, key := range []string{"", "a\nb", "\xff", string(make([]byte, 2000))} {
			_, err := c.UnaryCall(t.Context(), ask(key))
			refusedAs(t, err, codes.InvalidArgument, "INVALID_KEY")
		}
	})
	inWorld(t, "cut", func(t *testing.T, w *world) {
		w.Host.Cut()
		for _, wait := range []time.Duration{0, 5 * sec, time.Minute} {
			_, err := exclusive(t, w.Claims, never(t), grpcmw.Config{Wait: wait}).UnaryCall(t.Context(), ask("k"))
			if r := refusedAs(t, err, codes.Unavailable, "UNAVAILABLE"); r.RetryAfter != sec || r.Key != "k" {
				t.Errorf("got %+v", r)
			}
		}
	})
	inWorld(t, "lost reply", func(t *testing.T, w *world) {
		w.Host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: 1, LoseReply: true})
		svc := &service{unary: func(context.Context, *request) (*response, error) { return &response{}, nil }}
		if _, err := exclusive(t, w.Claims, svc, grpcmw.Config{}).UnaryCall(t.Context(), ask("k")); err != nil {
			t.Errorf("a lost reply is looked into: %v", err)
		}
	})
	inWorld(t, "client gone", func(t *testing.T, w *world) {
		claim, err := w.Other.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*sec)
		defer cancel()
		_, err = exclusive(t, w.Claims, never(t), grpcmw.Config{Wait: -1}).UnaryCall(ctx, ask("k"))
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
		if err := claim.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(sec)
		w.Free(t, "k") // nobody is left in line
	})
	inWorld(t, "closed", func(t *testing.T, w *world) {
		if err := w.Claims.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := exclusive(t, w.Claims, never(t), grpcmw.Config{}).UnaryCall(t.Context(), ask("k"))
		refusedAs(t, err, codes.Unavailable, "UNAVAILABLE")
	})
	inWorld(t, "own answer", func(t *testing.T, w *world) {
		if _, err := w.Other.TryAcquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		_, err := exclusive(t, w.Claims, never(t), grpcmw.Config{
			Refuse: func(_ context.Context, _ string, r *grpcmw.RefusedError) error {
				var held *etcdclaims.HeldError
				if !errors.As(r, &held) {
					t.Errorf("Err is %v", r.Err)
				}
				r.Owner, r.RetryAfter = "", 1500*time.Millisecond
				return nil
			},
		}).UnaryCall(t.Context(), ask("k"))
		if r := refusedAs(t, err, codes.Aborted, "HELD"); r.Owner != "" || r.RetryAfter != 1500*time.Millisecond {
			t.Errorf("got %+v", r)
		}
	})
	inWorld(t, "not selected", func(t *testing.T, w *world) {
		w.Host.Cut()
		svc := &service{unary: func(ctx context.Context, _ *request) (*response, error) {
			if _, ok := fencing.FromContext(ctx); ok {
				t.Error("it has a token")
			}
			return &response{}, nil
		}}
		if _, err := exclusive(t, w.Claims, svc, grpcmw.Config{Select: grpcmw.Methods("/other.Service/")}).UnaryCall(t.Context(), ask("k")); err != nil {
			t.Error(err)
		}
	})
}

// Claims that break their contract succeed in nothing.
func TestExclusiveNotCalled(t *testing.T) {
	t.Parallel()
	c := connect(t, never(t), grpcmw.Exclusive(idle{}, byPayload, grpcmw.Config{}), stamped()...)
	_, err := c.UnaryCall(t.Context(), ask("k"))
	refusedAs(t, err, codes.Unavailable, "UNAVAILABLE")
}

type idle struct{}

func (idle) Run(context.Context, string, func(context.Context) error, ...middleware.AcquireOption) error {
	return nil
}

func (idle) TryRun(context.Context, string, func(context.Context) error, ...middleware.AcquireOption) error {
	return nil
}

// A call that may wait has its turn when the one before it is done.
func TestExclusiveWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		running, most := 0, 0
		svc := &service{unary: func(context.Context, *request) (*response, error) {
			running++
			most = max(most, running)
			time.Sleep(sec)
			running--
			return &response{}, nil
		}}
		here := exclusive(t, w.Claims, svc, grpcmw.Config{Wait: time.Minute})
		there := exclusive(t, w.Other, svc, grpcmw.Config{Wait: -1})
		done := make(chan error, 8)
		began := time.Now()
		for i := range 8 {
			c := here
			if i%2 > 0 {
				c = there
			}
			go func() {
				_, err := c.UnaryCall(t.Context(), ask("k"))
				done <- err
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if most != 1 || time.Since(began) > 10*sec {
			t.Errorf("%d at a time, %v in all", most, time.Since(began))
		}
		w.Free(t, "k")
	})
}

// What is lost is answered as that, whatever the handler says.
func TestExclusiveLost(t *testing.T) {
	t.Parallel()
	for name, lose := range testclaims.Losses {
		for word, say := range map[string]func(context.Context) (*response, error){
			"success": func(context.Context) (*response, error) { return &response{}, nil },
			"context": func(ctx context.Context) (*response, error) { return nil, ctx.Err() },
			"cause":   func(ctx context.Context) (*response, error) { return nil, context.Cause(ctx) },
			"failure": func(context.Context) (*response, error) { return nil, errors.New("of its own") },
			"another": func(context.Context) (*response, error) { return nil, fencing.ErrStale },
		} {
			inWorld(t, name+"/"+word, func(t *testing.T, w *world) {
				svc := &service{unary: func(ctx context.Context, _ *request) (*response, error) {
					lose(t, w)
					time.Sleep(sec) // it does not look at its context
					if name != "asleep" && !errors.Is(context.Cause(ctx), fencing.ErrLost) {
						t.Errorf("the context goes on, or ended by %v", context.Cause(ctx))
					}
					return say(ctx)
				}}
				_, err := exclusive(t, w.Claims, svc, grpcmw.Config{}, limit(name)...).UnaryCall(t.Context(), ask("k"))
				r := refusedAs(t, err, codes.Aborted, "CLAIM_LOST")
				if !errors.Is(err, fencing.ErrLost) || r.Fence == 0 || r.Key != "k" || r.RetryAfter != sec {
					t.Errorf("got %+v", r)
				}
			})
		}
	}
}

// A loss that only the end of the claim finds counts, too.
func TestExclusiveLostSilently(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		svc := &service{unary: func(context.Context, *request) (*response, error) {
			w.Revoke(t, "k")
			return &response{}, nil
		}}
		_, err := exclusive(t, w.Claims, svc, grpcmw.Config{}).UnaryCall(t.Context(), ask("k"))
		refusedAs(t, err, codes.Aborted, "CLAIM_LOST")
	})
}

// Whether a claim is held yet that the wall clock says is over, has to be found out.
func TestExclusiveUnknown(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		svc := &service{unary: func(context.Context, *request) (*response, error) {
			w.Host.StepClock(time.Hour)
			return &response{}, nil
		}}
		_, err := exclusive(t, w.Claims, svc, grpcmw.Config{}).UnaryCall(t.Context(), ask("k"))
		if r := refusedAs(t, err, codes.Unknown, "OUTCOME_UNKNOWN"); r.RetryAfter != 0 || !errors.Is(err, fencing.ErrUnknown) {
			t.Errorf("got %+v", r)
		}
		w.Free(t, "k")
	})
}

// What is finished in the drain is finished: the claim was held to the end.
func TestExclusiveDrains(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		say  error
		code codes.Code
	}{
		"success":  {nil, codes.OK},
		"own":      {status.Error(codes.NotFound, "of its own"), codes.NotFound},
		"stopped":  {context.Canceled, codes.Aborted}, // the client has not cancelled anything
		"stopped ": {status.FromContextError(context.Canceled).Err(), codes.Aborted},
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			svc := &service{unary: func(ctx context.Context, _ *request) (*response, error) {
				slow := w.Host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseRequest: true})
				<-ctx.Done()
				slow.Remove()
				if err := fencing.Check(ctx); err != nil {
					t.Errorf("Check: %v", err)
				}
				return &response{}, test.say
			}}
			_, err := exclusive(t, w.Claims, svc, grpcmw.Config{}).UnaryCall(t.Context(), ask("k"))
			if status.Code(err) != test.code {
				t.Errorf("got %v, want %v", err, test.code)
			}
			if test.code == codes.Aborted {
				refusedAs(t, err, codes.Aborted, "CLAIM_LOST")
			}
			w.Free(t, "k")
		})
	}
}

// A server that closes its claims tells its handlers to stop: their clients have not
// cancelled anything then.
func TestExclusiveCloses(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		svc := &service{unary: func(ctx context.Context, _ *request) (*response, error) {
			go func() { _ = w.Claims.Close(context.Background()) }()
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		_, err := exclusive(t, w.Claims, svc, grpcmw.Config{}).UnaryCall(t.Context(), ask("k"))
		refusedAs(t, err, codes.Unknown, "OUTCOME_UNKNOWN")
		w.Free(t, "k")
	})
}

// A handler that goes on after its client has left is a zombie, and its key is not
// another's until its lease has lapsed.
func TestExclusiveIgnoresItsContext(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, c grpc_testing.TestServiceClient) error{
		"unary": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
			_, err := c.UnaryCall(ctx, ask("k"))
			return err
		},
		"stream": func(ctx context.Context, c grpc_testing.TestServiceClient) error {
			stream, err := c.StreamingOutputCall(ctx, askFor("k"))
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan struct{})
			handle := func() error {
				defer close(left)
				cancel()
				time.Sleep(10 * sec) // the drain is 3 s
				if _, err := w.Other.TryAcquire(context.Background(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
					t.Errorf("another got %v, want ErrHeld", err)
				}
				return nil
			}
			svc := &service{
				unary: func(context.Context, *request) (*response, error) { return &response{}, handle() },
				watch: func(*order, watchServer) error { return handle() },
			}
			seen := make(chan *grpcmw.RefusedError, 1)
			c := connect(t, svc, grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{Refuse: func(_ context.Context, _ string, r *grpcmw.RefusedError) error {
				seen <- r
				return nil
			}}), stamped()...)
			if err := call(ctx, c); status.Code(err) != codes.Canceled || errors.Is(err, fencing.ErrLost) {
				t.Errorf("got %v", err)
			}
			<-left
			if r := <-seen; r.Reason != "CLAIM_LOST" {
				t.Errorf("the server says %+v", r)
			}
			if n := w.Claims.Stats().Zombies; n != 1 {
				t.Errorf("%d zombies", n)
			}
		})
	}
}

// A panic, and Goexit, give the key up and go on, where interceptors further out may
// recover.
func TestExclusivePanics(t *testing.T) {
	t.Parallel()
	unary := &grpc.UnaryServerInfo{FullMethod: "/s/Unary"}
	stream := &grpc.StreamServerInfo{FullMethod: "/s/Stream", IsClientStream: true, IsServerStream: true}
	for name, leave := range map[string]func(){"panic": func() { panic("own") }, "Goexit": runtime.Goexit} {
		for kind, call := range map[string]func(w *world){
			"unary": func(w *world) {
				_, _ = grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}).Unary(context.Background(), ask("k"), unary,
					func(context.Context, any) (any, error) { leave(); return nil, nil })
			},
			"stream": func(w *world) {
				_ = grpcmw.Exclusive(w.Claims, fixed("k"), grpcmw.Config{}).Stream(nil, &pipe{}, stream,
					func(any, grpc.ServerStream) error { leave(); return nil })
			},
			"stream, by message": func(w *world) {
				_ = grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}).Stream(nil, &pipe{}, stream,
					func(_ any, ss grpc.ServerStream) error {
						if err := ss.RecvMsg(ask("k")); err != nil {
							panic(err)
						}
						leave()
						return nil
					})
			},
			"receiving": func(w *world) {
				_ = grpcmw.Exclusive(w.Claims, fixed("k"), grpcmw.Config{}).Stream(nil, &pipe{step: leave}, stream,
					func(_ any, ss grpc.ServerStream) error { return ss.RecvMsg(ask("k")) })
			},
			"sending": func(w *world) {
				_ = grpcmw.Exclusive(w.Claims, fixed("k"), grpcmw.Config{}).Stream(nil, &pipe{step: leave}, stream,
					func(_ any, ss grpc.ServerStream) error { return ss.SendMsg(ask("k")) })
			},
			"key": func(w *world) {
				key := grpcmw.CallKey(func(context.Context, string) string { leave(); return "" })
				_ = grpcmw.Exclusive(w.Claims, key, grpcmw.Config{}).Stream(nil, &pipe{}, stream,
					func(any, grpc.ServerStream) error { return fmt.Errorf("the handler runs") })
			},
		} {
			inWorld(t, name+"/"+kind, func(t *testing.T, w *world) {
				left := make(chan any)
				go func() {
					defer func() { left <- recover() }()
					call(w)
					t.Error("it returned")
				}()
				if p := <-left; name == "panic" && p != "own" {
					t.Errorf("panic %v", p)
				}
				w.Free(t, "k")
			})
		}
	}
}

// pipe is a stream that does nothing, but for step.
type pipe struct {
	grpc.ServerStream
	step func()
}

func (p *pipe) Context() context.Context { return context.Background() }

func (p *pipe) RecvMsg(any) error { return p.SendMsg(nil) }

func (p *pipe) SendMsg(any) error {
	if p.step != nil {
		p.step()
	}
	return nil
}

// What is not configured costs nothing and asks for nothing.
func TestExclusivePassesThrough(t *testing.T) {
	t.Parallel()
	none, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	svc := &service{
		unary: func(ctx context.Context, _ *request) (*response, error) { return &response{}, ctx.Err() },
		watch: func(_ *order, stream watchServer) error { return stream.Send(&news{}) },
	}
	for name, i := range map[string]grpcmw.ServerInterceptors{
		"passthrough": grpcmw.Exclusive(none, byPayload, grpcmw.Config{}),
	} {
		c := connect(t, svc, i)
		if _, err := c.UnaryCall(t.Context(), ask("")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		stream, err := c.StreamingOutputCall(t.Context(), askFor(""))
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without a client every call is refused: the error of New was ignored.
func TestExclusiveWithoutClient(t *testing.T) {
	t.Parallel()
	svc := &service{
		unary: func(context.Context, *request) (*response, error) {
			t.Error("the handler was called")
			return &response{}, nil
		},
	}
	for name, i := range map[string]grpcmw.ServerInterceptors{
		"nil":         grpcmw.Exclusive(nil, byPayload, grpcmw.Config{}),
		"nil client":  grpcmw.Exclusive((*etcdclaims.Client)(nil), byPayload, grpcmw.Config{}),
		"zero client": grpcmw.Exclusive(new(etcdclaims.Client), byPayload, grpcmw.Config{}),
	} {
		if _, err := connect(t, svc, i).UnaryCall(t.Context(), ask("k")); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
