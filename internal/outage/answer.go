package outage

import (
	"context"
	"errors"
	"time"

	"github.com/etcdclaims/claims/internal/txn"
	"google.golang.org/grpc/codes"
)

type answerKind int

const (
	gotAnswer  answerKind = iota
	noAnswer              // etcd was asked and did not answer
	notWaited             // its caller left before etcd could be expected to answer
	leastAwait = time.Second
)

// answer judges how a request ended. An etcd without a leader answers nothing
// that matters.
func answer(ctx context.Context, t0 time.Time, err error) answerKind {
	if err == nil {
		return gotAnswer
	}
	if errors.Is(err, txn.ErrNoAnswer) || txn.IsNotSent(err) && ctx.Err() == nil {
		return noAnswer
	}
	switch txn.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		if ctx.Err() != nil && (errors.Is(ctx.Err(), context.Canceled) || time.Since(t0) < leastAwait) {
			return notWaited
		}
		return noAnswer
	case codes.Unavailable:
		return noAnswer
	}
	return gotAnswer
}
