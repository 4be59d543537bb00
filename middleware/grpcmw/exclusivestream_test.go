package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/middleware/grpcmw"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExclusiveStreams(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]grpcmw.Key{"by call": fixed("k"), "by message": byPayload} {
		inWorld(t, name, func(t *testing.T, w *world) {
			holds := func(ctx context.Context) {
				token, ok := fencing.FromContext(ctx)
				info, err := w.Other.Lookup(ctx, "k")
				if !ok || err != nil || info.Fence != token.Fence || token.Key != "k" || fencing.Check(ctx) != nil {
					t.Errorf("token %v, %v; held: %+v, %v", token, ok, info, err)
				}
			}
			svc := &service{
				watch: func(_ *order, stream watchServer) error {
					holds(stream.Context())
					return errors.Join(stream.Send(&news{}), stream.Send(&news{}))
				},
				upload: func(stream uploadServer) error {
					for {
						_, err := stream.Recv()
						holds(stream.Context())
						if errors.Is(err, io.EOF) {
							return stream.SendAndClose(&receipt{AggregatedPayloadSize: 7})
						} else if err != nil {
							return err
						}
					}
				},
				chat: func(stream chatServer) error {
					for {
						if _, err := stream.Recv(); err != nil {
							return status.Error(codes.NotFound, err.Error())
						}
						holds(stream.Context())
						if err := stream.Send(&news{}); err != nil {
							return err
						}
					}
				},
			}
			c := connect(t, svc, grpcmw.Exclusive(w.Claims, key, grpcmw.Config{}), stamped()...)
			watch, err := c.StreamingOutputCall(t.Context(), askFor("k"))
			for range 2 {
				if err == nil {
					_, err = watch.Recv()
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := watch.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("got %v", err)
			}
			w.Free(t, "k")

			upload, err := c.StreamingInputCall(t.Context())
			if err == nil {
				err = errors.Join(upload.Send(partOf("k")), upload.Send(partOf("k")))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := upload.CloseAndRecv(); err != nil || got.GetAggregatedPayloadSize() != 7 {
				t.Errorf("got %v, %v", got, err)
			}
			w.Free(t, "k")

			chat, err := c.FullDuplexCall(t.Context())
			for range 3 {
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
			if _, err := chat.Recv(); status.Code(err) != codes.NotFound {
				t.Errorf("got %v", err)
			}
			w.Free(t, "k")
		})
	}
}

func TestExclusiveStreamRefuses(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]grpcmw.Key{"by call": fixed("k"), "by message": byPayload} {
		inWorld(t, "held, "+name, func(t *testing.T, w *world) {
			svc := &service{
				watch: func(*order, watchServer) error { t.Error("the handler runs"); return nil },
				chat: func(stream chatServer) error {
					for range 2 { // by a message only, where the handler has to begin
						if _, err := stream.Recv(); !errors.Is(err, fencing.ErrHeld) {
							t.Errorf("receiving: %v", err)
						}
					}
					if err := stream.Send(&news{}); !errors.Is(err, fencing.ErrHeld) {
						t.Errorf("sending: %v", err)
					}
					return nil // as if that were nothing
				},
			}
			c := connect(t, svc, grpcmw.Exclusive(w.Claims, key, grpcmw.Config{Wait: 5 * sec}), stamped()...)
			if _, err := w.Other.TryAcquire(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			watch, err := c.StreamingOutputCall(t.Context(), askFor("k"))
			if err == nil {
				_, err = watch.Recv()
			}
			if r := refusedAs(t, err, codes.Aborted, "HELD"); r.Owner != "there" || r.RetryAfter != sec || !errors.Is(err, fencing.ErrHeld) {
				t.Errorf("got %+v", r)
			}
			if took := time.Since(began); took < 5*sec || took > 6*sec {
				t.Errorf("refused after %v", took)
			}
			chat, err := c.FullDuplexCall(t.Context())
			if err == nil {
				err = chat.Send(askFor("k"))
			}
			if err == nil || errors.Is(err, io.EOF) {
				_, err = chat.Recv()
			}
			refusedAs(t, err, codes.Aborted, "HELD")
		})
	}
	inWorld(t, "key", func(t *testing.T, w *world) {
		var say error
		svc := &service{chat: func(stream chatServer) error {
			for {
				if _, err := stream.Recv(); err != nil {
					return say
				}
			}
		}}
		c := connect(t, svc, grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}), stamped()...)
		for _, keys := range [][]string{{}, {""}, {"\x00"}, {"k", "other"}, {"k", "k", ""}} {
			chat, err := c.FullDuplexCall(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range keys {
				_ = chat.Send(askFor(key))
			}
			_ = chat.CloseSend()
			_, err = chat.Recv()
			refusedAs(t, err, codes.InvalidArgument, "INVALID_KEY")
			w.Free(t, "k")
			say = errors.New("of its own")
		}
		c = connect(t, svc, grpcmw.Exclusive(w.Claims, fixed(""), grpcmw.Config{}), stamped()...)
		chat, err := c.FullDuplexCall(t.Context())
		if err == nil {
			_, err = chat.Recv()
		}
		refusedAs(t, err, codes.InvalidArgument, "INVALID_KEY")
	})
	// Handlers that do not wait for their key.
	for name, early := range map[string]func(t *testing.T, stream chatServer) error{
		"sends": func(t *testing.T, stream chatServer) error {
			if err := stream.Send(&news{}); err == nil {
				t.Error("it sent something")
			}
			_, err := stream.Recv()
			return err
		},
		"returns": func(*testing.T, chatServer) error { return nil },
		"receives elsewhere": func(_ *testing.T, stream chatServer) error {
			go func() { _, _ = stream.Recv() }()
			time.Sleep(time.Microsecond)
			return nil
		},
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			svc := &service{chat: func(stream chatServer) error { return early(t, stream) }}
			slow := w.Host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: -1, DelayReply: sec})
			defer slow.Remove()
			c := connect(t, svc, grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}), stamped()...)
			chat, err := c.FullDuplexCall(t.Context())
			if err == nil {
				err = chat.Send(askFor("k"))
			}
			if err == nil || errors.Is(err, io.EOF) {
				_, err = chat.Recv()
			}
			refusedAs(t, err, codes.Internal, "UNCLAIMED")
			time.Sleep(10 * sec)
			w.Free(t, "k")
		})
	}
	inWorld(t, "fails before", func(t *testing.T, w *world) {
		own := status.Error(codes.PermissionDenied, "of its own")
		svc := &service{chat: func(chatServer) error { return own }}
		c := connect(t, svc, grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}), stamped()...)
		chat, err := c.FullDuplexCall(t.Context())
		if err == nil {
			_, err = chat.Recv()
		}
		if !errors.Is(err, own) {
			t.Errorf("got %v", err)
		}
	})
}

// Once the claim is lost nothing goes on, wherever the handler is, and whatever it
// makes of that.
func TestExclusiveStreamLost(t *testing.T) {
	t.Parallel()
	for name, lose := range testclaims.Losses {
		for place, handle := range map[string]func(stream chatServer, lost func()) error{
			"before receiving": func(stream chatServer, lost func()) error {
				lost()
				_, err := stream.Recv()
				return err
			},
			"before sending": func(stream chatServer, lost func()) error {
				lost()
				return stream.Send(&news{})
			},
			"receiving": func(stream chatServer, lost func()) error {
				done := beside(lost)
				_, err := stream.Recv() // the client says no more
				<-done
				return err
			},
			"sending": func(stream chatServer, lost func()) error {
				done := beside(lost)
				defer func() { <-done }()
				for { // the client receives none of it
					if err := stream.Send(&news{Payload: payload(string(make([]byte, 64<<10)))}); err != nil {
						return err
					}
				}
			},
		} {
			inWorld(t, name+"/"+place, func(t *testing.T, w *world) {
				ended := make(chan error, 1)
				svc := &service{chat: func(stream chatServer) error {
					_, err := stream.Recv()
					if err != nil {
						return err
					}
					err = handle(stream, func() {
						lose(t, w)
						time.Sleep(sec)
					})
					if name == "asleep" && err == nil {
						err = fencing.Check(stream.Context())
					}
					ended <- err
					for range 2 {
						if name == "asleep" {
							break // the context has not heard of it yet
						}
						if err := stream.Send(&news{}); !errors.Is(err, fencing.ErrLost) {
							t.Errorf("sending then: %v", err)
						}
						if _, err := stream.Recv(); !errors.Is(err, fencing.ErrLost) {
							t.Errorf("receiving then: %v", err)
						}
					}
					return nil
				}}
				c := connect(t, svc, grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}, limit(name)...), stamped()...)
				chat, err := c.FullDuplexCall(t.Context())
				if err == nil {
					err = chat.Send(askFor("k"))
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := <-ended; !errors.Is(err, fencing.ErrLost) {
					t.Errorf("the handler got %v", err)
				}
				for err == nil {
					_, err = chat.Recv()
				}
				r := refusedAs(t, err, codes.Aborted, "CLAIM_LOST")
				if !errors.Is(err, fencing.ErrLost) || r.Fence == 0 || r.Key != "k" {
					t.Errorf("got %+v", r)
				}
			})
		}
	}
}

// beside calls f in a goroutine, and closes the channel after it.
func beside(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// The end of the messages after a loss is no end to commit at.
func TestExclusiveStreamLostBeforeTheEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		got := make(chan struct{})
		svc := &service{upload: func(stream uploadServer) error {
			for {
				switch _, err := stream.Recv(); {
				case err == nil:
					close(got)
				case errors.Is(err, io.EOF):
					t.Error("it would commit")
					return stream.SendAndClose(&receipt{})
				default:
					return err
				}
			}
		}}
		c := connect(t, svc, grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}), stamped()...)
		upload, err := c.StreamingInputCall(t.Context())
		if err == nil {
			err = upload.Send(partOf("k"))
		}
		if err != nil {
			t.Fatal(err)
		}
		<-got
		w.Host.Suspend(time.Minute) // nobody is told before
		_, err = upload.CloseAndRecv()
		refusedAs(t, err, codes.Aborted, "CLAIM_LOST")
	})
}

// A stream that is told to stop may say its last words in the drain.
func TestExclusiveStreamDrains(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pass bool // it passes on what it got
		code codes.Code
	}{"last words": {false, codes.OK}, "passed on": {true, codes.Aborted}} {
		inWorld(t, name, func(t *testing.T, w *world) {
			svc := &service{watch: func(_ *order, stream watchServer) error {
				slow := w.Host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseRequest: true})
				defer slow.Remove()
				<-stream.Context().Done()
				if err := stream.Send(&news{}); err != nil {
					t.Errorf("sending: %v", err)
				}
				err := stream.RecvMsg(askFor(""))
				if !errors.Is(err, fencing.ErrLost) {
					t.Errorf("receiving: %v", err)
				}
				if !test.pass {
					err = nil
				}
				return err
			}}
			c := connect(t, svc, grpcmw.Exclusive(w.Claims, fixed("k"), grpcmw.Config{}), stamped()...)
			watch, err := c.StreamingOutputCall(t.Context(), askFor("k"))
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = watch.Recv()
			if test.code == codes.OK && !errors.Is(err, io.EOF) || test.code != codes.OK && status.Code(err) != test.code {
				t.Errorf("got %v", err)
			}
			w.Free(t, "k")
		})
	}
}

// A client that leaves ends the stream as ever, and gives up the key.
func TestExclusiveStreamClientGone(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]grpcmw.Key{"by call": fixed("k"), "by message": byPayload} {
		inWorld(t, name, func(t *testing.T, w *world) {
			got := make(chan error, 2)
			svc := &service{chat: func(stream chatServer) error {
				for {
					_, err := stream.Recv()
					got <- err
					if err != nil {
						return err
					}
				}
			}}
			c := connect(t, svc, grpcmw.Exclusive(w.Claims, key, grpcmw.Config{}), stamped()...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			chat, err := c.FullDuplexCall(ctx)
			if err == nil {
				err = chat.Send(askFor("k"))
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			if _, err := w.Other.TryAcquire(t.Context(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
				t.Errorf("another got %v", err)
			}
			cancel()
			if err := <-got; status.Code(err) != codes.Canceled {
				t.Errorf("got %v", err)
			}
			synctest.Wait()
			time.Sleep(sec)
			w.Free(t, "k")
		})
	}
}

// A handler that receives in another goroutine, and has returned when the key comes,
// leaves nobody with it.
func TestExclusiveStreamTooLate(t *testing.T) {
	t.Parallel()
	claims := &deaf{come: make(chan struct{}), given: make(chan struct{})}
	svc := &service{chat: func(stream chatServer) error {
		go func() { _, _ = stream.Recv() }()
		<-claims.come
		return nil
	}}
	c := connect(t, svc, grpcmw.Exclusive(claims, byPayload, grpcmw.Config{}), stamped()...)
	chat, err := c.FullDuplexCall(t.Context())
	if err == nil {
		err = chat.Send(askFor("k"))
	}
	if err == nil {
		_, err = chat.Recv()
	}
	refusedAs(t, err, codes.Internal, "UNCLAIMED")
	<-claims.given
}

// deaf are claims that do not hear that they are not waited for.
type deaf struct{ come, given chan struct{} }

func (d *deaf) Run(ctx context.Context, key string, fn func(context.Context) error, opts ...middleware.AcquireOption) error {
	return d.TryRun(ctx, key, fn, opts...)
}

func (d *deaf) TryRun(ctx context.Context, _ string, fn func(context.Context) error, _ ...middleware.AcquireOption) error {
	close(d.come)
	<-ctx.Done() // the handler has returned
	defer close(d.given)
	return fn(ctx)
}

// A handler may return while a goroutine of its own still receives, as gRPC allows:
// the call ends as the handler returned.
func TestExclusiveStreamReturnsWhileReceiving(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]grpcmw.Key{"by call": fixed("k"), "by message": byPayload} {
		for what, returned := range map[string]error{"nil": nil, "an error": status.Error(codes.NotFound, "own")} {
			inWorld(t, name+", "+what, func(t *testing.T, w *world) {
				received := make(chan error)
				svc := &service{chat: func(stream chatServer) error {
					if _, err := stream.Recv(); err != nil {
						return err
					}
					go func() { _, err := stream.Recv(); received <- err }()
					synctest.Wait() // it waits for a message
					return returned
				}}
				refuse := func(_ context.Context, _ string, r *grpcmw.RefusedError) error {
					t.Errorf("refused: %v", r)
					return nil
				}
				c := connect(t, svc, grpcmw.Exclusive(w.Claims, key, grpcmw.Config{Refuse: refuse}), stamped()...)
				for range 20 {
					chat, err := c.FullDuplexCall(t.Context())
					if err == nil {
						err = chat.Send(askFor("k"))
					}
					if err != nil {
						t.Fatal(err)
					}
					_, err = chat.Recv()
					if returned == nil && !errors.Is(err, io.EOF) || returned != nil && status.Code(err) != codes.NotFound {
						t.Errorf("the call ends with %v", err)
					}
					if err := <-received; err == nil {
						t.Error("a message came from nowhere")
					}
				}
				w.Free(t, "k")
			})
		}
	}
}
