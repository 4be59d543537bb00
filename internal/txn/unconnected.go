package txn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
)

// Unconnected is why gRPC has no connection: the error of its last attempt to make one, such
// as that of a TLS handshake. It does not say whether a request was sent.
type Unconnected struct{ Reason string }

// Error returns the reason, with what it is the reason of.
func (u *Unconnected) Error() string { return "cannot connect: " + u.Reason }

// CallError is clientv3.ContextError for the error of gRPC itself, and keeps what that drops.
// A request that waited for a connection until ctx ended has the Unconnected in its error.
func CallError(ctx context.Context, err error) error {
	return explained(err, clientv3.ContextError(ctx, err))
}

// explained joins to a judged error what gRPC's own error says of the connection.
func explained(own, judged error) error {
	if u := unconnected(own); u != nil {
		return fmt.Errorf("%w (%w)", judged, u)
	}
	return judged
}

// unconnected returns what the error of a request says of the last attempt to connect, or nil.
// gRPC gives it only as text, after these words (picker_wrapper.go).
func unconnected(err error) *Unconnected {
	st, ok := statusOf(err)
	if !ok {
		return nil
	}
	_, reason, ok := strings.Cut(st.Message(), "latest balancer error: ")
	if !ok {
		return nil
	}
	return because(reason)
}

// because is the reason within an error of gRPC.
func because(reason string) *Unconnected {
	// The text is: connection error: desc = "transport: authentication handshake failed: …"
	if _, quoted, ok := strings.Cut(reason, "desc = "); ok {
		if text, err := strconv.Unquote(quoted); err == nil {
			reason = text
		}
	}
	return &Unconnected{strings.TrimPrefix(reason, "transport: ") + hint(reason)}
}

// hint returns what a connection means that was closed before it was used. From TLS 1.3 on, a
// server refuses a certificate after the client's handshake has ended. If it is quick, gRPC
// fails to write, and does not read why.
func hint(reason string) string {
	if strings.Contains(reason, "Error while dialing") {
		return ""
	}
	for _, closed := range []string{"broken pipe", "connection reset", "forcibly closed", "EOF"} {
		if strings.Contains(reason, closed) {
			return " (the server closed the connection at once, as it does when it refuses the client's certificate, or does not speak TLS)"
		}
	}
	return ""
}

// WhyUnconnected returns what an error says of the last attempt to connect, or nil.
func WhyUnconnected(err error) error {
	var u *Unconnected
	if errors.As(err, &u) {
		return u
	}
	return nil
}

// Explain adds to the error of a request or of a wait, which ended without an answer, why its client
// cannot connect. A request that clientv3 sends does not say so, nor does the end of ctx.
func Explain(etcd *clientv3.Client, err error) error {
	code := Code(err)
	if err == nil || code != codes.DeadlineExceeded && code != codes.Canceled && code != codes.Unavailable ||
		WhyUnconnected(err) != nil || !CannotConnect(etcd) {
		return err
	}
	// It is not sent, because there is no connection that it waits for. If there is one by now, it does no harm.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	read := &pb.RangeRequest{Key: []byte{0}, Serializable: true, CountOnly: true}
	_, own := pb.NewKVClient(etcd.ActiveConnection()).Range(ctx, read, grpc.WaitForReady(false))
	if u := unconnected(own); u != nil {
		return fmt.Errorf("%w (%w)", err, u)
	}
	if st, ok := statusOf(own); ok && st.Code() == codes.Unavailable && strings.Contains(st.Message(), "connection error: desc = ") {
		return fmt.Errorf("%w (%w)", err, because(st.Message()))
	}
	return err
}

// CannotConnect reports whether the last attempt of a client to connect has failed.
func CannotConnect(etcd *clientv3.Client) bool {
	conn := etcd.ActiveConnection()
	return conn != nil && conn.GetState() == connectivity.TransientFailure
}
