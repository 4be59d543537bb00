package simulation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
)

// ledger is what was done to whom and when, so that what clients lose can be
// held against it.
type ledger struct {
	mu    sync.Mutex
	spans []*span
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
	l.spans = append(l.spans, &s)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if s.to.IsZero() {
			s.to = time.Now()
		}
	}
}

// during returns how many spans last at any time between the two that are of such.
func (l *ledger) during(from, to time.Time, such func(s *span) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.spans {
		if !s.from.After(to) && (s.to.IsZero() || !s.to.Before(from)) && such(s) {
			n++
		}
	}
	return n
}

// full reports whether etcd was full at any time between the two.
func (l *ledger) full(from, to time.Time) bool {
	return l.during(from, to, func(s *span) bool { return s.quota }) > 0
}

// wrong counts what was wrong for the process at any time between the two.
func (l *ledger) wrong(who *process, from, to time.Time) (outages, others int) {
	disturbs := func(s *span) bool {
		return (s.who == nil || s.who == who) && !s.quota && !s.deaf && (s.injection == nil || s.injection.Hits() > 0)
	}
	outages = l.during(from, to, func(s *span) bool { return s.outage && disturbs(s) })
	return outages, l.during(from, to, disturbs) - outages
}

// blip reports whether all that was wrong for the process between the two was
// one cut, and that short.
func (l *ledger) blip(who *process, from, to time.Time, short time.Duration) bool {
	if outages, others := l.wrong(who, from, to); outages != 1 || others > 0 {
		return false
	}
	return l.during(from, to, func(s *span) bool { return s.who == who && s.cut && !s.to.IsZero() && s.to.Sub(s.from) < short }) > 0
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
	return l.hearing(who, from, to) && l.during(from, to, func(s *span) bool { return s.deaf && (s.who == who || who == nil) }) == 0
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
		// A request that goes missing is no reason, nor is a cut that leaves time for another attempt.
		now := time.Now()
		from := now.Add(-p.longest() - time.Second)
		outages, others := p.w.ledger.wrong(p, from, now)
		p.w.faultIf(outages == 0 && others <= 1 || p.w.ledger.blip(p, from, now, p.ttl/6),
			"%s lost %v, though nothing kept it from renewing in time (%d requests disturbed, %d short cuts): %v",
			p.name, l.Token, others, outages, l)
	}
}
