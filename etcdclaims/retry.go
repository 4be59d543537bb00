package etcdclaims

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/txn"
)

// isPassing reports whether what failed, of a kind that changes nothing, may
// succeed when it is tried again.
func isPassing(err error) bool {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrRewound) {
		return false
	}
	return txn.IsTransient(err) || errors.Is(err, ErrUnknown) || errors.Is(err, errSessionLost) || txn.MayPass(err)
}

// afterSent makes the error of a call, or nil, match ErrUnknown if one of its requests may have
// been carried out.
func afterSent(sent bool, err error) error { return txn.AfterSent(sent, err) }

// notAttempted is the error of a call whose context had ended before it. No request was sent.
func notAttempted(err error) error { return fmt.Errorf("not attempted: %w", err) }

// unanswered returns the cause of the end of a context in which etcd was waited for, and why
// the client cannot connect.
func (c *Client) unanswered(ctx context.Context) error {
	err := txn.ContextError(ctx)
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(ctx.Err(), context.Canceled) {
		return err // a caller that leaves shows nothing of etcd
	}
	return fmt.Errorf("etcd has not answered: %w", txn.Explain(c.etcd, err))
}
