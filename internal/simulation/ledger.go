package simulation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ledger is what was done to whom and when, so that what clients lose can be
// held against it.
type ledger struct {
	mu    sync.Mutex
	spans []span
}

// span is a time in which something was wrong.
type span struct {
	who      *process  // nil: everybody
	from, to time.Time // to is zero while it lasts
	outage   bool      // nothing passes; else single requests suffer
	cut      bool      // an outage that is over with its end, without a trace
	quota    bool      // only what etcd grows by is refused
	deaf     bool      // only what comes on watches is lost

	injection *claimtest.Injection // of those, nil if it cannot be told
}

// begin notes that something begins to be wrong. The returned function notes its end.
func (l *ledger) begin(s span) (end func()) {
	s.from = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans = append(l.spans, s)
	n := len(l.spans) - 1
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.spans[n].to.IsZero() {
			l.spans[n].to = time.Now()
		}
	}
}

// within reports whether the span lasts at any time between the two.
func (s span) within(from, to time.Time) bool {
	return !s.from.After(to) && (s.to.IsZero() || !s.to.Before(from))
}

// full reports whether etcd was full at any time between the two.
func (l *ledger) full(from, to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.spans, func(s span) bool { return s.quota && s.within(from, to) })
}

// wrong counts what was wrong for the process at any time between the two.
func (l *ledger) wrong(who *process, from, to time.Time) (outages, others int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.spans {
		if s.who != nil && s.who != who || s.quota || s.deaf || !s.within(from, to) || s.injection != nil && s.injection.Hits() == 0 {
			continue
		}
		if s.outage {
			outages++
		} else {
			others++
		}
	}
	return outages, others
}

// blip reports whether all that was wrong for the process between the two was
// one cut, and that short.
func (l *ledger) blip(who *process, from, to time.Time, short time.Duration) bool {
	if outages, others := l.wrong(who, from, to); outages != 1 || others > 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.spans, func(s span) bool {
		return s.who == who && s.cut && s.within(from, to) && !s.to.IsZero() && s.to.Sub(s.from) < short
	})
}

// recovery is what gRPC may take to connect again after an outage.
const recovery = 40 * time.Second

// hearing says whether nothing was wrong for the process around a time, but that
// its watches may have been deaf.
func (l *ledger) hearing(who *process, from, to time.Time) bool {
	outages, others := l.wrong(who, from.Add(-recovery), to)
	return outages+others == 0
}

// healthy says whether nothing at all was wrong for the process around a time.
func (l *ledger) healthy(who *process, from, to time.Time) bool {
	if !l.hearing(who, from, to) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.spans, func(s span) bool {
		return s.deaf && (s.who == who || who == nil) && s.within(from, to)
	})
}

// termEnded is told of every end of a term, where it happens, and judges losses.
func (p *process) termEnded(_ context.Context, term etcdclaims.TermInfo) {
	var l *etcdclaims.LostError
	if p.dead.Load() || !errors.As(term.Err, &l) {
		return
	}
	p.w.count("lost: " + l.Reason.String())
	if !strings.HasPrefix(l.Token.Key, queueTokens) { // which is judged by its items
		p.w.history.Ended(p.name, l.Token)
		p.w.trace.lost(l.Token, p, l.Reason)
	}
	if _, manual := p.manuals.Load(l.Token); l.Reason == etcdclaims.ReasonExpired && !manual {
		p.w.justify(p, l)
	}
}

// justify checks that a claim that expired had a reason to: a request that goes
// missing is no reason, nor is a cut that leaves time for another attempt.
func (w *world) justify(p *process, l *etcdclaims.LostError) {
	now := time.Now()
	from := now.Add(-p.longest() - time.Second)
	outages, others := w.ledger.wrong(p, from, now)
	if outages == 0 && others <= 1 || w.ledger.blip(p, from, now, p.ttl/6) {
		w.fault("%s lost %v, though nothing kept it from renewing in time (%d requests disturbed, %d short cuts): %v", p.name, l.Token, others, outages, l)
	}
}

// class says what kind of error it is, and that it is one only.
func (p *process) class(what string, err error) {
	if err == nil || p.dead.Load() {
		return
	}
	var found []string
	for name, is := range classes {
		if is(err) {
			found = append(found, name)
		}
	}
	p.w.count("error: " + what)
	if len(found) != 1 {
		p.w.fault("%s: the error of %s is of the classes %q, not of one: %v", p.name, what, found, err)
	}
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// classes of errors. What is unknown names its cause, too, which is of the
// class of the cause where it stands alone.
var classes = map[string]func(error) bool{
	"lost": func(err error) bool {
		return isAny(err, etcdclaims.ErrLost, etcdclaims.ErrReleased) && !errors.Is(err, etcdclaims.ErrUnknown)
	},
	"unknown": func(err error) bool { return errors.Is(err, etcdclaims.ErrUnknown) },
	"refused": func(err error) bool {
		return isAny(err, etcdclaims.ErrHeld, etcdclaims.ErrRefused, work.ErrDone, work.ErrDead, work.ErrBackoff)
	},
	"queue": func(err error) bool {
		return !answered(err) && isAny(err, queue.ErrFull, queue.ErrNotFound, queue.ErrTaken, queue.ErrUnchanged)
	},
	"config": func(err error) bool {
		return !answered(err) && isAny(err, etcdclaims.ErrInvalidKey, etcdclaims.ErrSlots, etcdclaims.ErrTooLarge, etcdclaims.ErrRewound, etcdclaims.ErrPassthrough)
	},
	"no space": func(err error) bool { return !answered(err) && errors.Is(err, rpctypes.ErrNoSpace) },
	"auth":     func(err error) bool { return !answered(err) && isAuth(err) },
	"retryable": func(err error) bool {
		return !answered(err) && !errors.Is(err, etcdclaims.ErrRewound) && !errors.Is(err, rpctypes.ErrNoSpace) && !isAuth(err) && isPassing(err)
	},
}

// answered reports whether the error says what became of the claim.
func answered(err error) bool {
	return isAny(err, etcdclaims.ErrLost, etcdclaims.ErrReleased, etcdclaims.ErrUnknown, etcdclaims.ErrHeld,
		etcdclaims.ErrRefused, work.ErrDone, work.ErrDead, work.ErrBackoff)
}

func isAuth(err error) bool {
	switch code(err) {
	case codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	return isAny(err, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty)
}

// isPassing reports whether the same call may succeed later.
func isPassing(err error) bool {
	if isAny(err, context.Canceled, context.DeadlineExceeded, etcdclaims.ErrClosed) {
		return true
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) { // of a session that was revoked as it was opened
		return true
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Aborted, codes.Unknown:
		return true
	case codes.InvalidArgument: // of a token that was issued before authentication was changed
		return errors.Is(err, rpctypes.ErrAuthOldRevision)
	}
	return false
}

func code(err error) codes.Code {
	var ee rpctypes.EtcdError
	if errors.As(err, &ee) {
		return ee.Code()
	}
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	return codes.OK
}
