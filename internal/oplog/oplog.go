// Package oplog logs how the requests of one user of a client end, by their purpose: those that etcd
// denies or refuses for good, and those that fail while etcd answers others.
package oplog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
)

// Log follows how requests end. The client logs that etcd is unreachable, once for all who use it,
// so the failures of that time are not logged again.
type Log struct {
	log         *zap.Logger
	unreachable func() error

	mu         sync.Mutex
	operations map[string]*operation
}

// operation is how the requests for one purpose have ended.
type operation struct {
	granted bool      // one has succeeded
	refused time.Time // since when they are denied; zero if they are not
	failing time.Time // since when they fail though the client reaches etcd; zero if they do not
	failed  time.Time // when the last one failed
	warned  bool      // the log has that they fail
	told    time.Time // when the log had last that etcd refuses one
}

const (
	// deniedFor is how long etcd can deny an operation that it permitted before, as
	// while an operator changes roles, until the error is final.
	deniedFor = 5 * time.Second
	// failsAlone is how long requests can fail while the client reaches etcd until that
	// is logged. Within it the client notices an outage that causes them.
	failsAlone = time.Minute
	// refusedAgain is the least time between two warnings that etcd refuses requests for
	// the same purpose.
	refusedAgain = time.Minute
)

// New returns a Log. The client's function reports whether etcd answers.
func New(log *zap.Logger, unreachable func() error) *Log {
	return &Log{log: log, unreachable: unreachable, operations: make(map[string]*operation)}
}

// of returns an operation. The mutex is held.
func (o *Log) of(what string) *operation {
	op := o.operations[what]
	if op == nil {
		op = new(operation)
		o.operations[what] = op
	}
	return op
}

// Judge notes that an operation failed, as Fail does, and reports whether that is final, because
// etcd denied it.
func (o *Log) Judge(what string, err error, fields ...zap.Field) (final bool) {
	if IsDenied(err) {
		return o.denied(what, err, fields...)
	}
	o.Fail(what, err, fields...)
	return false
}

// denied notes that etcd denied an operation, and reports whether that is final.
func (o *Log) denied(what string, err error, fields ...zap.Field) bool {
	o.mu.Lock()
	op := o.of(what)
	first := op.refused.IsZero()
	if first {
		op.refused = clock.Mono()
	}
	final := !op.granted || time.Since(op.refused) >= deniedFor
	o.mu.Unlock()
	if first || final {
		o.log.Error("etcd denies permission", append(fields, zap.String("operation", what), zap.Error(err))...)
	}
	return final
}

// Succeed notes that an operation succeeded.
func (o *Log) Succeed(what string) {
	o.mu.Lock()
	op := o.of(what)
	since, warned := op.failing, op.warned
	*op = operation{granted: true, told: op.told}
	o.mu.Unlock()
	if warned {
		o.log.Info("requests succeeded again", zap.String("operation", what), zap.Time("since", since))
	}
}

// Fail notes that a request failed. The fields name its keys.
func (o *Log) Fail(what string, err error, fields ...zap.Field) {
	if errors.Is(err, context.Canceled) {
		return
	}
	fields = append(fields, zap.String("operation", what), zap.Error(err))
	if IsTooLarge(err) || IsRefusal(err) {
		o.mu.Lock()
		op := o.of(what)
		tell := op.told.IsZero() || time.Since(op.told) >= refusedAgain
		if tell {
			op.told = clock.Mono()
		}
		o.mu.Unlock()
		if tell {
			o.log.Warn("request refused; retrying", fields...)
			return
		}
		o.log.Debug("request refused; retrying", fields...)
		return
	}
	away, now := o.unreachable() != nil, clock.Mono()
	o.mu.Lock()
	op := o.of(what)
	switch {
	case op.warned:
	case away:
		op.failing = time.Time{}
	case op.failing.IsZero() || now.Sub(op.failed) >= failsAlone: // not in between
		op.failing = now
	}
	op.failed = now
	warn := !op.warned && !op.failing.IsZero() && now.Sub(op.failing) >= failsAlone
	op.warned = op.warned || warn
	since := op.failing
	o.mu.Unlock()
	if warn {
		o.log.Warn("requests failed while etcd answered others; retrying", append(fields, zap.Time("since", since))...)
		return
	}
	o.log.Debug("request failed; retrying", fields...)
}

// IsDenied reports whether etcd refused a request because of a missing permission.
func IsDenied(err error) bool { return errors.Is(err, txn.ErrPermissionDenied) }

// IsTooLarge reports whether a transaction was larger than etcd allows.
func IsTooLarge(err error) bool {
	return errors.Is(err, txn.ErrTooLarge) || errors.Is(err, rpctypes.ErrTooManyOps)
}

// IsRefusal reports whether etcd would refuse the same request again, for another reason than
// a missing permission.
func IsRefusal(err error) bool { return txn.Judge(err) == txn.Final && !IsDenied(txn.Denied(err)) }
