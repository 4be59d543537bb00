package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware/grpcmw"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func token(key string, fence int64) fencing.Token { return fencing.Token{Key: key, Fence: fence} }

func mustAdmit(t *testing.T, gate fencing.Gate, tok fencing.Token) {
	t.Helper()
	if err := gate.Admit(t.Context(), tok); err != nil {
		t.Error(err)
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	served := 0
	svc := &service{unary: func(ctx context.Context, _ *request) (*response, error) {
		served++
		if tok, ok := fencing.FromContext(ctx); !ok || tok.Key != "stock/7" {
			t.Errorf("token %v, %v", tok, ok)
		}
		return &response{Username: "done"}, nil
	}}
	var gate fencing.Memory
	c := connect(t, svc, grpcmw.Gate(&gate, byPayload, grpcmw.Config{}), stamped()...)
	for range 2 { // the owner may repeat itself
		resp, err := c.UnaryCall(fencing.NewContext(t.Context(), token("stock/7", 5)), ask("stock/7"))
		if err != nil || resp.GetUsername() != "done" {
			t.Fatalf("got %v, %v", resp, err)
		}
	}
	served = 0
	put := func(key string, values ...string) error {
		_, err := c.UnaryCall(with(t.Context(), values...), ask(key))
		return err
	}
	err := put("stock/7", `3;key="stock/7"`)
	r := refusedAs(t, err, codes.FailedPrecondition, "STALE_FENCE")
	var stale *fencing.StaleError
	if !errors.As(err, &stale) || stale.Newest != 5 || stale.Token != token("stock/7", 3) || !errors.Is(err, fencing.ErrStale) {
		t.Errorf("got %v", err)
	}
	if r.Newest != 5 || r.Fence != 3 || r.Key != "stock/7" || r.RetryAfter != 0 {
		t.Errorf("got %+v", r)
	}
	if err := put("stock/8", `6;key="stock/7"`); !errors.Is(err, fencing.ErrNoToken) {
		t.Errorf("a token of another key: %v", err)
	}
	// The key is that of the call, and the fence of another key is none of it.
	if r := refusedAs(t, put("stock/8", `6;key="stock/7"`), codes.InvalidArgument, "MISSING_FENCE"); r.Key != "stock/8" || r.Fence != 0 {
		t.Errorf("got %+v", r)
	}
	if r := refusedAs(t, put("stock/7"), codes.InvalidArgument, "MISSING_FENCE"); r.Key != "stock/7" || r.Fence != 0 {
		t.Errorf("got %+v", r)
	}
	if r := refusedAs(t, put("", `6;key="stock/7"`), codes.InvalidArgument, "INVALID_KEY"); r.Key != "" || r.Fence != 0 {
		t.Errorf("got %+v", r)
	}
	for _, bad := range [][]string{{""}, {"7"}, {`0;key="stock/7"`}, {`-1;key="stock/7"`}, {`7;key="stock/7"`, `7;key="stock/7"`}, {`7;key="stock/7", 8;key="stock/7"`}} {
		err := put("stock/7", bad...)
		if r := refusedAs(t, err, codes.InvalidArgument, "MALFORMED_FENCE"); !errors.Is(err, fencing.ErrMalformed) || r.Key != "stock/7" || r.Fence != 0 {
			t.Errorf("got %+v", r)
		}
	}
	if served != 0 {
		t.Errorf("the handler ran %d times", served)
	}
	// What was refused has raised nothing.
	if err := put("stock/7", `5;key="stock/7"`); err != nil {
		t.Error(err)
	}
}

// What clients without this package see: a status with details.
func TestGateStatus(t *testing.T) {
	t.Parallel()
	var gate fencing.Memory
	key := strings.Repeat("é", 512) // the longest there is, and the longest of its texts
	mustAdmit(t, &gate, token(key, 8))
	c := connect(t, &service{}, grpcmw.Gate(&gate, anyKey, grpcmw.Config{}))
	text, _ := token(key, 7).MarshalText()
	_, err := c.UnaryCall(with(t.Context(), string(text)), ask(""))
	st := status.Convert(err)
	if st.Code() != codes.FailedPrecondition || len(st.Details()) != 1 {
		t.Fatalf("got %v", st.Proto())
	}
	info, _ := st.Details()[0].(*errdetails.ErrorInfo)
	want := map[string]string{"key": key, "fence": "7", "newest": "8"}
	if info.GetDomain() != "etcdclaims" || info.GetReason() != "STALE_FENCE" || fmt.Sprint(info.GetMetadata()) != fmt.Sprint(want) {
		t.Errorf("got %v", info)
	}
	if n := len(st.Message()); n == 0 || n > 400 {
		t.Errorf("the message has %d bytes", n)
	}
}

// The status names the newest fence only if the gate knows it.
func TestGateStatusWithoutTheNewest(t *testing.T) {
	t.Parallel()
	for newest, want := range map[int64]string{0: "The fence sent is 7.", 8: "The fence sent is 7, the newest is 8."} {
		gate := fencing.GateFunc(func(_ context.Context, tok fencing.Token) error {
			return &fencing.StaleError{Token: tok, Newest: newest}
		})
		c := connect(t, &service{}, grpcmw.Gate(gate, anyKey, grpcmw.Config{}))
		_, err := c.UnaryCall(with(t.Context(), `7;key="k"`), ask(""))
		if st := status.Convert(err); st.Code() != codes.FailedPrecondition || !strings.HasSuffix(st.Message(), " "+want) {
			t.Errorf("got %v, want %q", st, want)
		}
	}
}

// A gate that has no answer lets nothing through.
func TestGateFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]error{"error": errors.New("database is down"), "unknown": fencing.ErrUnknown, "unknown staleness": errors.Join(fencing.ErrStale, fencing.ErrUnknown), "cancelled": context.Canceled} {
		gate := fencing.GateFunc(func(context.Context, fencing.Token) error { return fault })
		var seen error
		c := connect(t, &service{}, grpcmw.Gate(gate, anyKey, grpcmw.Config{
			Refuse: func(_ context.Context, method string, r *grpcmw.RefusedError) error {
				seen = r.Err
				if method != "/grpc.testing.TestService/UnaryCall" && method != "/grpc.testing.TestService/FullDuplexCall" {
					t.Errorf("method %s", method)
				}
				return nil
			},
		}), stamped()...)
		ctx := with(t.Context(), `5;key="k"`)
		_, err := c.UnaryCall(ctx, ask(""))
		if r := refusedAs(t, err, codes.Unavailable, "UNAVAILABLE"); r.RetryAfter != sec || strings.Contains(r.Message, "database") {
			t.Errorf("%s: got %+v: what the database says is nobody's business", name, r)
		}
		if !errors.Is(seen, fault) {
			t.Errorf("%s: Refuse saw %v", name, seen)
		}
		stream, err := c.FullDuplexCall(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		refusedAs(t, err, codes.Unavailable, "UNAVAILABLE")
	}
}

// A gate that fails in the middle of a stream leaves open what the handler has done.
func TestGateFailsMidway(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	gate := fencing.GateFunc(func(context.Context, fencing.Token) error {
		if asked.Add(1) > 1 { // the first time is before the handler is called
			return errors.New("database is down")
		}
		return nil
	})
	svc := &service{chat: func(stream chatServer) error {
		_, err := stream.Recv()
		return err
	}}
	c := connect(t, svc, grpcmw.Gate(gate, anyKey, grpcmw.Config{}), stamped()...)
	stream, err := c.FullDuplexCall(with(t.Context(), `5;key="k"`))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(askFor("k")); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	if r := refusedAs(t, err, codes.Unknown, "OUTCOME_UNKNOWN"); r.RetryAfter != 0 || strings.Contains(r.Message, "Nothing was done") {
		t.Errorf("got %+v", r)
	}
}

func TestGateRefusesInOtherWords(t *testing.T) {
	t.Parallel()
	own := status.Error(codes.PermissionDenied, "go away")
	c := connect(t, &service{}, grpcmw.Gate(new(fencing.Memory), anyKey, grpcmw.Config{
		Refuse: func(context.Context, string, *grpcmw.RefusedError) error { return own },
	}), stamped()...)
	if _, err := c.UnaryCall(t.Context(), ask("")); !errors.Is(err, own) {
		t.Errorf("got %v", err)
	}
	stream, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, own) {
		t.Errorf("got %v", err)
	}
}

func TestGateSelects(t *testing.T) {
	t.Parallel()
	svc := &service{
		unary: func(context.Context, *request) (*response, error) { return &response{}, nil },
		chat:  func(chatServer) error { return nil },
	}
	c := connect(t, svc, grpcmw.Gate(new(fencing.Memory), byPayload, grpcmw.Config{Select: grpcmw.Methods("/grpc.testing.TestService/StreamingOutputCall")}))
	if _, err := c.UnaryCall(t.Context(), ask("k")); err != nil {
		t.Error(err)
	}
	chat, err := c.FullDuplexCall(t.Context())
	if err == nil {
		_, err = chat.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	watch, err := c.StreamingOutputCall(t.Context(), askFor("k"))
	if err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

// How a stream of an owner ends that is outlived, whatever its handler makes of it.
func TestGateStream(t *testing.T) {
	t.Parallel()
	type scene struct {
		gate *fencing.Memory
		c    grpc_testing.TestServiceClient
		svc  *service
		ctx  context.Context
		next chan error // what steps of the handler came to
	}
	run := func(name string, key grpcmw.Key, f func(t *testing.T, s *scene)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scene{gate: new(fencing.Memory), svc: new(service), next: make(chan error, 10)}
			s.ctx = fencing.NewContext(t.Context(), token("k", 5))
			s.c = connect(t, s.svc, grpcmw.Gate(s.gate, key, grpcmw.Config{}), stamped()...)
			f(t, s)
		})
	}
	stale := func(t *testing.T, err error) {
		t.Helper()
		r := refusedAs(t, err, codes.FailedPrecondition, "STALE_FENCE")
		if r.Newest != 6 || !errors.Is(err, fencing.ErrStale) {
			t.Errorf("got %+v", r)
		}
	}
	run("received", byPayload, func(t *testing.T, s *scene) {
		s.svc.chat = func(stream chatServer) error {
			if tok, _ := fencing.FromContext(stream.Context()); tok != token("k", 5) {
				t.Errorf("token %v", tok)
			}
			for range 4 {
				_, err := stream.Recv()
				s.next <- err
			}
			s.next <- stream.Send(&news{})
			<-stream.Context().Done()
			s.next <- context.Cause(stream.Context())
			return nil
		}
		stream, err := s.c.FullDuplexCall(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := stream.Send(askFor("k")); err != nil {
				t.Fatal(err)
			}
			if err := <-s.next; err != nil {
				t.Fatal(err)
			}
		}
		mustAdmit(t, s.gate, token("k", 6))
		if err := stream.Send(askFor("k")); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			stale(t, <-s.next)
		}
		_, err = stream.Recv()
		stale(t, err)
	})
	run("sent", byPayload, func(t *testing.T, s *scene) {
		s.svc.watch = func(_ *order, stream watchServer) error {
			for {
				if err := stream.Send(&news{}); err != nil {
					return errors.New("of its own")
				}
				if err := <-s.next; err != nil {
					return err
				}
			}
		}
		stream, err := s.c.StreamingOutputCall(s.ctx, askFor("k"))
		for range 3 {
			if err == nil {
				_, err = stream.Recv()
			}
			s.next <- nil
		}
		if err != nil {
			t.Fatal(err)
		}
		mustAdmit(t, s.gate, token("k", 6))
		s.next <- nil
		for range 3 { // what was on its way
			if _, err = stream.Recv(); err != nil {
				break
			}
		}
		stale(t, err)
	})
	run("end of the messages", byPayload, func(t *testing.T, s *scene) {
		s.svc.upload = func(stream uploadServer) error {
			_, err := stream.Recv()
			s.next <- err
			if _, err = stream.Recv(); errors.Is(err, io.EOF) {
				t.Error("it would commit")
			}
			return stream.SendAndClose(&receipt{})
		}
		stream, err := s.c.StreamingInputCall(s.ctx)
		if err == nil {
			err = stream.Send(partOf("k"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := <-s.next; err != nil {
			t.Fatal(err)
		}
		mustAdmit(t, s.gate, token("k", 6))
		_, err = stream.CloseAndRecv()
		stale(t, err)
	})
	run("reply of work that was done", byPayload, func(t *testing.T, s *scene) {
		s.svc.upload = func(stream uploadServer) error {
			for {
				if _, err := stream.Recv(); errors.Is(err, io.EOF) {
					mustAdmit(t, s.gate, token("k", 6))
					return stream.SendAndClose(&receipt{AggregatedPayloadSize: 7})
				} else if err != nil {
					return err
				}
			}
		}
		stream, err := s.c.StreamingInputCall(s.ctx)
		if err == nil {
			err = stream.Send(partOf("k"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := stream.CloseAndRecv(); err != nil || got.GetAggregatedPayloadSize() != 7 {
			t.Errorf("got %v, %v", got, err)
		}
	})
	run("another key", byPayload, func(t *testing.T, s *scene) {
		s.svc.upload = func(stream uploadServer) error {
			for {
				if _, err := stream.Recv(); err != nil {
					s.next <- err
					return nil
				}
			}
		}
		stream, err := s.c.StreamingInputCall(s.ctx)
		if err == nil {
			err = errors.Join(stream.Send(partOf("k")), stream.Send(partOf("other")))
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.CloseAndRecv()
		refusedAs(t, err, codes.InvalidArgument, "MISSING_FENCE")
		refusedAs(t, <-s.next, codes.InvalidArgument, "MISSING_FENCE")
	})
	run("never begins", fixed("other"), func(t *testing.T, s *scene) {
		stream, err := s.c.FullDuplexCall(s.ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		refusedAs(t, err, codes.InvalidArgument, "MISSING_FENCE")
	})
	run("stale at once", byPayload, func(t *testing.T, s *scene) {
		mustAdmit(t, s.gate, token("k", 6))
		stream, err := s.c.FullDuplexCall(s.ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		stale(t, err)
	})
	run("both ways at a time", byPayload, func(t *testing.T, s *scene) {
		s.svc.chat = func(stream chatServer) error {
			var both sync.WaitGroup
			both.Go(func() {
				for stream.Send(&news{}) == nil {
				}
			})
			both.Go(func() {
				for {
					if _, err := stream.Recv(); err != nil {
						return
					}
				}
			})
			both.Wait()
			return nil
		}
		stream, err := s.c.FullDuplexCall(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for stream.Send(askFor("k")) == nil {
			}
		}()
		for i := 0; ; i++ {
			if i == 100 {
				mustAdmit(t, s.gate, token("k", 6))
			}
			if _, err := stream.Recv(); err != nil {
				stale(t, err)
				return
			}
		}
	})
}

func TestGateWantsAKey(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"Gate":        func() { grpcmw.Gate(new(fencing.Memory), grpcmw.Key{}, grpcmw.Config{}) },
		"Gate waits":  func() { grpcmw.Gate(new(fencing.Memory), anyKey, grpcmw.Config{Wait: 1}) },
		"nil gate":    func() { grpcmw.Gate(nil, byPayload, grpcmw.Config{}) },
		"CallKey":     func() { grpcmw.Gate(new(fencing.Memory), grpcmw.CallKey(nil), grpcmw.Config{}) },
		"MessageKey":  func() { grpcmw.Gate(new(fencing.Memory), grpcmw.MessageKey[*request](nil), grpcmw.Config{}) },
		"Exclusive":   func() { grpcmw.Exclusive(nil, grpcmw.Key{}, grpcmw.Config{}) },
		"Methods":     func() { grpcmw.Methods("shop.Orders/Pay") },
		"Methods, 2":  func() { grpcmw.Methods("/shop.Orders") },
		"no service":  func() { grpcmw.Methods("//Pay") },
		"no method":   func() { grpcmw.Methods("") },
		"three parts": func() { grpcmw.Methods("/a/b/c") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestSelects(t *testing.T) {
	t.Parallel()
	some := grpcmw.Methods("/shop.Orders/Pay", "/shop.Stock/")
	for method, want := range map[string][2]bool{
		"/shop.Orders/Pay":             {true, true},
		"/shop.Orders/Show":            {true, false},
		"/shop.Stock/Put":              {true, true},
		"/shop.StockRoom/Put":          {true, false},
		"/grpc.health.v1.Health/Check": {false, false},
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {false, false},
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {false, false},
		"/grpc.channelz.v1.Channelz/GetServers":                          {false, false},
		"/grpc.testing.TestService/UnaryCall":                            {true, false},
		"odd":                                                            {true, false},
	} {
		if got := [2]bool{grpcmw.Services(method), some(method)}; got != want {
			t.Errorf("%s: got %v, want %v", method, got, want)
		}
	}
}

// anyKey lets a token of any key pass.
var anyKey = grpcmw.CallKey(func(ctx context.Context, _ string) string {
	values := metadata.ValueFromIncomingContext(ctx, fencing.Header)
	if len(values) == 0 {
		return ""
	}
	token, _ := fencing.Parse(values[0])
	return token.Key
})
