package telemetry

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// call is what the hooks of an acquiring call, and of its term, keep in their context.
type call struct {
	template string
	key      string
	mode     string
	began    time.Time
	left     func()            // forgets that it waits; nil if it does not
	caller   trace.SpanContext // of the call's context

	acquire trace.Span
	hold    trace.Span // nil until the key is acquired
}

// callKey is the key of a call in the context. A client can have more than one Telemetry.
type callKey struct{ t *Telemetry }

// callOf returns the call of the context of a hook, or nil if it is not followed.
func (t *Telemetry) callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{t}).(*call)
	return c
}

// callBegan begins the span of a call. It returns ctx as it is if neither metrics nor
// traces would show the call.
func (t *Telemetry) callBegan(ctx context.Context, of etcdclaims.Call) context.Context {
	caller := trace.SpanContextFromContext(ctx)
	began := time.Now()
	spanned, acquire := t.tracer.Start(ctx, "etcdclaims.acquire")
	if !t.acquire.Enabled(ctx) && !t.hold.Enabled(ctx) && !acquire.IsRecording() && acquire.SpanContext().Equal(caller) {
		return ctx // there is no SDK
	}
	c := &call{key: of.Key, template: t.keys.of(of.Key), mode: "try", began: began, caller: caller, acquire: acquire}
	if of.Wait {
		c.mode = "wait"
		c.left = track(t, t.calls, c, true)
	}
	if acquire.IsRecording() {
		acquire.SetAttributes(t.spanKey(c.key, c.template), keyTemplate.String(c.template), keyMode.String(c.mode))
	}
	return context.WithValue(spanned, callKey{t}, c)
}

// termBegan begins the span of the claim.
func (t *Telemetry) termBegan(ctx context.Context, term etcdclaims.TermInfo) {
	c := t.callOf(ctx)
	if c == nil {
		return
	}
	if term.TookOver {
		t.takeovers.Add(ctx, 1, t.options.of(series{}.with(keyTemplate, c.template)).add...)
	}
	parent := ctx
	if c.caller.IsValid() {
		parent = trace.ContextWithSpanContext(ctx, c.caller)
	}
	var opts []trace.SpanStartOption
	if from, ok := parseTrace(term.Trace); ok {
		opts = append(opts, trace.WithLinks(trace.Link{
			SpanContext: from,
			Attributes:  []attribute.KeyValue{attribute.String("etcdclaims.link", "handover")},
		}))
	}
	_, c.hold = t.tracer.Start(parent, "etcdclaims.hold", opts...)
	if c.hold.IsRecording() {
		c.hold.SetAttributes(t.spanKey(c.key, c.template), keyTemplate.String(c.template), keyFence.String(formatFence(term.Token.Fence)))
		if term.Attempt > 0 {
			c.hold.SetAttributes(attribute.Int("etcdclaims.attempt", term.Attempt))
		}
	}
}

// spanKey is the attribute by which spans name a key.
func (t *Telemetry) spanKey(key, template string) attribute.KeyValue {
	if t.hideKeys {
		key = template
	}
	return keyKey.String(key)
}

// setFailed sets the status of a span. Errors name keys, so with HideKeys the kind of the
// error describes it.
func (t *Telemetry) setFailed(span trace.Span, err error, kind string) {
	description := kind
	if !t.hideKeys {
		description = err.Error()
	}
	span.SetStatus(codes.Error, description)
}

// callEnded ends the span of the call.
func (t *Telemetry) callEnded(ctx context.Context, of etcdclaims.Call) {
	c := t.callOf(ctx)
	if c == nil {
		return
	}
	if c.left != nil {
		c.left()
	}
	result, errorType := resultOf(of.Err)
	s := series{}.with(keyTemplate, c.template).with(keyResult, result).with(keyMode, c.mode).with(keyError, errorType)
	t.acquire.Record(ctx, time.Since(c.began).Seconds(), t.options.of(s).record...)
	if of.Waited > 0 {
		t.wait.Record(ctx, of.Waited.Seconds(), t.options.of(series{}.with(keyTemplate, c.template).with(keyResult, result)).record...)
	}
	if c.acquire.IsRecording() {
		c.acquire.SetAttributes(keyResult.String(result))
		if errorType != "" {
			c.acquire.SetAttributes(keyError.String(errorType))
			t.setFailed(c.acquire, of.Err, errorType)
		}
	}
	c.acquire.End()
}

// workContext makes the span of the claim the parent of spans of its handler, where
// the acquiring call's own span would be.
func (t *Telemetry) workContext(ctx, work context.Context) context.Context {
	c := t.callOf(ctx)
	if c == nil || !c.hold.SpanContext().IsValid() {
		return work
	}
	if now := trace.SpanContextFromContext(work); now.IsValid() && !now.Equal(c.caller) {
		return work
	}
	return trace.ContextWithSpan(work, c.hold)
}

// traceOf returns the span of the claim in the form of W3C's traceparent, if it is
// sampled.
func (t *Telemetry) traceOf(ctx context.Context) string {
	c := t.callOf(ctx)
	if c == nil {
		return ""
	}
	return formatTrace(c.hold.SpanContext())
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

// termEnded ends the span of the claim.
func (t *Telemetry) termEnded(ctx context.Context, term etcdclaims.TermInfo) {
	c := t.callOf(ctx)
	if c == nil {
		return
	}
	reason := reasonOf(term)
	if ctx = context.Background(); c.hold.SpanContext().IsSampled() {
		ctx = trace.ContextWithSpan(ctx, c.hold) // for exemplars
	}
	t.hold.Record(ctx, term.Held.Seconds(), t.options.of(series{}.with(keyTemplate, c.template)).record...)
	t.ends.Add(ctx, 1, t.options.of(series{}.with(keyTemplate, c.template).with(keyReason, reason)).add...)
	if c.hold.IsRecording() {
		c.hold.SetAttributes(keyReason.String(reason))
		if errors.Is(term.Err, etcdclaims.ErrLost) {
			c.hold.AddEvent("lost", trace.WithAttributes(keyReason.String(reason)))
			if reason != "shutdown" {
				t.setFailed(c.hold, term.Err, reason)
			}
		}
	}
	c.hold.End()
}

// formatFence returns a fence as text: as a number it can have more digits than
// tools keep.
func formatFence(fence int64) string { return strconv.FormatInt(fence, 10) }
