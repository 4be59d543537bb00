package telemetry

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// observer follows one acquiring call and its claim.
type observer struct {
	t        *Telemetry
	template string
	key      string
	mode     string
	began    time.Time
	caller   trace.SpanContext // of the call

	ctx     context.Context // of the call, with its span; nil once it has returned
	acquire trace.Span

	hold atomic.Pointer[trace.Span] // nil until the key is acquired
}

// observe returns the observer of a call, or nil if neither metrics nor traces would
// show it.
func (t *Telemetry) observe(ctx context.Context, call etcdclaims.Call) etcdclaims.Observer {
	caller := trace.SpanContextFromContext(ctx)
	began := time.Now()
	spanned, acquire := t.tracer.Start(ctx, "etcdclaims.acquire")
	if !t.acquire.Enabled(ctx) && !t.hold.Enabled(ctx) && !acquire.IsRecording() && acquire.SpanContext().Equal(caller) {
		return nil // there is no SDK
	}
	o := &observer{t: t, key: call.Key, template: t.keys.of(call.Key), mode: "try", began: began, caller: caller, ctx: spanned, acquire: acquire}
	if call.Wait {
		o.mode = "wait"
	}
	if o.acquire.IsRecording() {
		o.acquire.SetAttributes(o.t.spanKey(o.key, o.template), keyTemplate.String(o.template), keyMode.String(o.mode))
	}
	return o
}

// Acquired begins the span of the claim.
func (o *observer) Acquired(a etcdclaims.Acquisition) {
	if a.TookOver {
		o.t.takeovers.Add(o.ctx, 1, o.t.options.of(series{}.with(keyTemplate, o.template)).add...)
	}
	parent := o.ctx
	if o.caller.IsValid() {
		parent = trace.ContextWithSpanContext(o.ctx, o.caller)
	}
	var opts []trace.SpanStartOption
	if from, ok := parseTrace(a.Trace); ok {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: from, Attributes: []attribute.KeyValue{attribute.String("etcdclaims.link", "handover")}}))
	}
	_, span := o.t.tracer.Start(parent, "etcdclaims.hold", opts...)
	if span.IsRecording() {
		span.SetAttributes(o.t.spanKey(o.key, o.template), keyTemplate.String(o.template), keyFence.String(formatFence(a.Token.Fence)))
		if a.Attempt > 0 {
			span.SetAttributes(attribute.Int("etcdclaims.attempt", a.Attempt))
		}
	}
	o.hold.Store(&span)
}

// spanKey is the attribute by which spans name a key.
func (t *Telemetry) spanKey(key, template string) attribute.KeyValue {
	if t.hideKeys {
		key = template
	}
	return keyKey.String(key)
}

// Returned ends the span of the call.
func (o *observer) Returned(waited time.Duration, err error) {
	result, errorType := resultOf(err)
	s := series{}.with(keyTemplate, o.template).with(keyResult, result).with(keyMode, o.mode).with(keyError, errorType)
	o.t.acquire.Record(o.ctx, time.Since(o.began).Seconds(), o.t.options.of(s).record...)
	if waited > 0 {
		o.t.wait.Record(o.ctx, waited.Seconds(), o.t.options.of(series{}.with(keyTemplate, o.template).with(keyResult, result)).record...)
	}
	if o.acquire.IsRecording() {
		o.acquire.SetAttributes(keyResult.String(result))
		if errorType != "" {
			o.acquire.SetAttributes(keyError.String(errorType))
			o.acquire.SetStatus(codes.Error, err.Error())
		}
	}
	o.acquire.End()
	o.ctx = nil // a claim may outlive the values of its caller
}

// Context makes the span of the claim the parent of spans of its handler, where
// the acquiring call's own span would be.
func (o *observer) Context(ctx context.Context) context.Context {
	hold := o.hold.Load()
	if hold == nil || !(*hold).SpanContext().IsValid() {
		return ctx
	}
	if now := trace.SpanContextFromContext(ctx); now.IsValid() && !now.Equal(o.caller) {
		return ctx
	}
	return trace.ContextWithSpan(ctx, *hold)
}

// Trace returns the span of the claim in the form of W3C's traceparent, if it is
// sampled.
func (o *observer) Trace() string {
	hold := o.hold.Load()
	if hold == nil {
		return ""
	}
	return formatTrace((*hold).SpanContext())
}

// formatTrace returns a span in the form of W3C's traceparent, if it is sampled.
func formatTrace(sc trace.SpanContext) string {
	if !sc.IsValid() || !sc.IsSampled() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
}

// parseTrace parses what formatTrace has returned.
func parseTrace(s string) (trace.SpanContext, bool) {
	parts := strings.Split(s, "-")
	if len(parts) != 4 || parts[0] != "00" {
		return trace.SpanContext{}, false
	}
	traceID, err := trace.TraceIDFromHex(parts[1])
	spanID, serr := trace.SpanIDFromHex(parts[2])
	if err != nil || serr != nil {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled, Remote: true}), true
}

// Ended ends the span of the claim.
func (o *observer) Ended(e etcdclaims.TermEnd) {
	ctx, reason := context.Background(), reasonOf(e)
	hold := o.hold.Load()
	if (*hold).SpanContext().IsSampled() {
		ctx = trace.ContextWithSpan(ctx, *hold) // for exemplars
	}
	o.t.hold.Record(ctx, e.Held.Seconds(), o.t.options.of(series{}.with(keyTemplate, o.template)).record...)
	o.t.ends.Add(ctx, 1, o.t.options.of(series{}.with(keyTemplate, o.template).with(keyReason, reason)).add...)
	if span := *hold; span.IsRecording() {
		span.SetAttributes(keyReason.String(reason))
		if errors.Is(e.Err, etcdclaims.ErrLost) {
			span.AddEvent("lost", trace.WithAttributes(keyReason.String(reason)))
			if reason != "shutdown" {
				span.SetStatus(codes.Error, e.Err.Error())
			}
		}
	}
	(*hold).End()
}

// formatFence returns a fence as text: as a number it can have more digits than
// tools keep.
func formatFence(fence int64) string { return strconv.FormatInt(fence, 10) }

// pair makes two observers of one.
type pair struct{ theirs, mine etcdclaims.Observer }

func (p pair) Acquired(a etcdclaims.Acquisition) {
	p.theirs.Acquired(a)
	p.mine.Acquired(a)
}

func (p pair) Returned(waited time.Duration, err error) {
	p.theirs.Returned(waited, err)
	p.mine.Returned(waited, err)
}

func (p pair) Context(ctx context.Context) context.Context {
	return p.mine.Context(p.theirs.Context(ctx))
}

func (p pair) Trace() string { return p.mine.Trace() }

func (p pair) Ended(e etcdclaims.TermEnd) {
	p.theirs.Ended(e)
	p.mine.Ended(e)
}
