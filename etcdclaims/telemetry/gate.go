package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"go.opentelemetry.io/otel/trace"
)

// Gate returns a gate that admits what next admits, and counts the results under
// the name. A refused stale token is the trace of a holder that still wrote after its
// claim was over: without the gate it would have written.
func (t *Telemetry) Gate(name string, next fencing.Gate) fencing.Gate {
	lag := &fenceLag{}
	return fencing.GateFunc(func(ctx context.Context, token fencing.Token) error {
		err := next.Admit(ctx, token)
		t.CountAdmission(ctx, name, token, err)
		if !t.fenceLag.Enabled(ctx) {
			return err
		}
		if since, ok := lag.note(token, admissionOf(err)); ok {
			t.fenceLag.Record(ctx, since.Seconds(), t.options.of(series{}.with(keyGate, name)).record...)
		}
		return err
	})
}

// CountAdmission counts the result of a check of a token without a Gate, such as that
// of sqlguard's Admit or of a guarded write: err is its error, or
// nil. A stale token is also an event of the span in ctx.
func (t *Telemetry) CountAdmission(ctx context.Context, gate string, token fencing.Token, err error) {
	result := admissionOf(err)
	t.admissions.Add(ctx, 1, t.options.of(series{}.with(keyGate, gate).with(keyResult, result)).add...)
	if result != "stale" {
		return
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("refused", trace.WithAttributes(
			keyGate.String(gate),
			t.spanKey(token.Key, t.keys.of(token.Key)),
			keyFence.String(formatFence(token.Fence)),
		))
	}
}

// fenceLag knows when the newest fences were admitted of some keys: of the keys
// used last, at least lagKeys of them.
type fenceLag struct {
	mu       sync.Mutex
	now, old map[string]rise
}

// rise is a fence, and when it was admitted first.
type rise struct {
	fence int64
	at    time.Time
}

const lagKeys = 2048

// note learns from a result. For a stale token it returns how long ago the key's
// fence rose, if that is known.
func (l *fenceLag) note(token fencing.Token, result string) (since time.Duration, ok bool) {
	if result != "admitted" && result != "stale" {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.now[token.Key]
	if !ok {
		last, ok = l.old[token.Key]
	}
	if result == "stale" {
		return time.Since(last.at), ok && token.Fence < last.fence
	}
	if token.Fence > last.fence {
		last = rise{token.Fence, time.Now()}
	}
	if l.now == nil || len(l.now) >= lagKeys {
		l.now, l.old = make(map[string]rise), l.now
	}
	l.now[token.Key] = last
	return 0, false
}
