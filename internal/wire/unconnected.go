package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
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
			return " (the server closed the connection at once, as it does when it refuses the client's certificate)"
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

// CannotConnect reports whether the last attempt of a client to connect has failed.
func CannotConnect(etcd *clientv3.Client) bool {
	conn := etcd.ActiveConnection()
	return conn != nil && conn.GetState() == connectivity.TransientFailure
}
