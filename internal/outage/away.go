package outage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/txn"
	"google.golang.org/grpc/connectivity"
)

// Explain adds to the error of a call, if etcd did not answer it and answers nothing else
// either, which endpoints that are and why there is no connection.
func (o *Outage) Explain(err error) error {
	if o.closed() && !errors.As(err, new(*awayError)) && (txn.IsClosing(err) || o.mayExplain(err)) {
		return &awayError{err, "; the etcd client was closed: close the client of claims first"}
	}
	now := o.State()
	if now.Since.IsZero() || !o.mayExplain(err) {
		return err
	}
	why := ""
	if u := txn.WhyUnconnected(now.Err); u != nil && txn.WhyUnconnected(err) == nil {
		why = ": " + u.Error()
	}
	return &awayError{err, fmt.Sprintf("; no answer from %s since %s%s: check the endpoints, and that etcd runs there",
		strings.Join(o.cfg.Etcd.Endpoints(), ", "), now.Since.Format(time.TimeOnly), why)}
}

// closed reports whether the program has closed its client of etcd.
func (o *Outage) closed() bool {
	if o.cfg.Etcd == nil { // a passthrough
		return false
	}
	conn := o.cfg.Etcd.ActiveConnection()
	return conn != nil && conn.GetState() == connectivity.Shutdown
}

// mayExplain reports whether an error can be due to an outage that it does not name yet.
func (o *Outage) mayExplain(err error) bool {
	switch {
	case err == nil, errors.As(err, new(*awayError)), errors.Is(err, context.Canceled), errors.Is(err, attach.ErrClosed):
		return false
	}
	return o.cfg.Passing(txn.Failed(err)) || errors.Is(err, context.DeadlineExceeded)
}

// awayError is the error of a call that etcd has not answered, as it answers nothing else.
type awayError struct {
	error
	away string
}

func (e *awayError) Error() string { return e.error.Error() + e.away }

func (e *awayError) Unwrap() error { return e.error }
