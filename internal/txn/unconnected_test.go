package txn

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The reason why there is no connection is kept, and does not change how an error is judged.
func TestCallError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for text, want := range map[string]string{
		"context deadline exceeded while waiting for connections to become ready":                                                "",
		`latest balancer error: connection error: desc = "transport: authentication handshake failed: tls: expired certificate"`: "cannot connect: authentication handshake failed: tls: expired certificate",
		`latest balancer error: connection error: desc = "transport: Error while dialing: dial tcp: EOF"`:                        "cannot connect: Error while dialing: dial tcp: EOF",
		`latest balancer error: connection error: desc = "error reading server preface: EOF"`:                                    "cannot connect: error reading server preface: EOF" + hint("EOF"),
		"latest balancer error: no children to pick from":                                                                        "cannot connect: no children to pick from",
	} {
		for code, cause := range map[codes.Code]error{codes.DeadlineExceeded: context.DeadlineExceeded, codes.Unavailable: nil} {
			err := CallError(ended, status.Error(code, text))
			why := WhyUnconnected(err)
			if (why == nil) != (want == "") || why != nil && why.Error() != want {
				t.Errorf("%q: %v, want %q", text, why, want)
			}
			if cause != nil && !errors.Is(err, cause) || Code(err) != code || !strings.HasSuffix(hint("EOF"), "or does not speak TLS)") {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

// A request that is not sent names the last attempt to connect.
func TestNotSentNamesTheReason(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	etcd := dial(t, l.Addr().String())
	_, sent, err := NewSender(etcd).Send(t.Context(), &pb.TxnRequest{}, 300*time.Millisecond)
	if why := WhyUnconnected(err); sent || why == nil || !strings.Contains(why.Error(), "connection refused") ||
		!errors.Is(err, ErrNotSent) || MayBeDone(err) {
		t.Errorf("sent %v, %v, because of %v", sent, err, why)
	}
	if !CannotConnect(etcd) {
		t.Error("it could connect")
	}
}
