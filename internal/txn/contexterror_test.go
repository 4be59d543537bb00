package txn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gRPC refuses messages for their length on either side, in words that differ
// little. Only those that stand for the request itself rule out that it was
// carried out.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	const size, receive = 3145901, 4194304
	for _, tt := range []struct {
		message        string
		server, toSend bool
		mayBeDone      bool
	}{
		{"grpc: received message larger than max (3145901 vs. 2097152)", true, false, true}, // until Send has looked
		{"grpc: received message larger than max (3145902 vs. 2097152)", false, false, true},
		{"grpc: received message larger than max (3145901 vs. 4194304)", false, false, true}, // the client's own limit
		{"grpc: message after decompression larger than max (3145901 vs. 2097152)", false, false, true},
		{"grpc: received message after decompression larger than max 2097152", false, false, true},
		{"grpc: trying to send message larger than max (3145901 vs. 2097152)", false, false, true}, // the server, of its reply
		{"trying to send message larger than max (3145901 vs. 2097152)", false, true, false},
	} {
		err := status.Error(codes.ResourceExhausted, tt.message)
		if got := isServersLimit(err, size, receive); got != tt.server {
			t.Errorf("%s: refused by the server: %v", tt.message, got)
		}
		if got := IsTooLargeToSend(err); got != tt.toSend {
			t.Errorf("%s: not sent: %v", tt.message, got)
		}
		if got := MayBeDone(err); got != tt.mayBeDone {
			t.Errorf("%s: may be done: %v", tt.message, got)
		}
	}
	if MayBeDone(fmt.Errorf("%w: and more", rpctypes.ErrRequestTooLarge)) {
		t.Error("a request that was too large may be done")
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  clientv3.Config
		want MessageLimits
	}{
		{clientv3.Config{}, MessageLimits{2 << 20, math.MaxInt32}},
		{clientv3.Config{MaxCallSendMsgSize: 1000, MaxCallRecvMsgSize: 2000}, MessageLimits{1000, 2000}},
	} {
		tt.cfg.Endpoints = []string{"127.0.0.1:1"}
		etcd, err := clientv3.New(tt.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := NewSender(etcd).Limits; got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
		_ = etcd.Close()
	}
}

// The end of a context is added to an error that does not name it, once.
func TestWithCauseOnce(t *testing.T) {
	t.Parallel()
	past := func(cause error) context.Context {
		ctx, cancel := context.WithDeadlineCause(context.Background(), time.Now().Add(-time.Second), cause)
		t.Cleanup(cancel)
		return ctx
	}
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	bound := errtext.Namesake("the bound passed", context.DeadlineExceeded)
	other := errors.New("no space")
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{context.Background(), other, "no space"},
		{stopped, context.Canceled, "context canceled"},
		{stopped, other, "no space (context canceled)"},
		{past(nil), ErrNoAnswer, "etcd does not answer: context deadline exceeded"},
		{past(nil), other, "no space (context deadline exceeded)"},
		{past(bound), ErrNoAnswer, "etcd does not answer: context deadline exceeded (the bound passed)"},
		{past(bound), WithCause(past(bound), ErrNoAnswer), "etcd does not answer: context deadline exceeded (the bound passed)"},
		{past(bound), WithCause(past(nil), ErrNoAnswer), "etcd does not answer: context deadline exceeded (the bound passed)"},
	} {
		got := WithCause(c.ctx, c.err)
		if got.Error() != c.want || !errors.Is(got, c.err) || c.ctx.Err() != nil && !errors.Is(got, c.ctx.Err()) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
