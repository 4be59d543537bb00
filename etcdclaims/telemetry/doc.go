// Package telemetry measures claims, schedules, queues and gates with
// OpenTelemetry: metrics for alerts and dashboards, and spans for traces. It
// uses the API of OpenTelemetry only. The program chooses the SDK and the
// exporters; without an SDK nothing is recorded.
//
//	tel, err := telemetry.New(telemetry.Config{})
//	...
//	cfg := etcdclaims.Config{}
//	tel.Instrument(&cfg)
//	claims, err := etcdclaims.New(etcd, cfg)
//	...
//	defer claims.Close(context.Background())
//
// InstrumentScheduler does the same for a sched.Config. Gate, Worker and
// WatchQueue measure gates and queues. docs/telemetry.md lists the metrics, and
// what to do when one of them is bad. docs/grafana has boards and alert rules.
//
// # Keys
//
// A key is never an attribute of a metric, since each new value makes new time
// series. A template of the key is; see [KeyTemplate]. There are at most 200 templates;
// all other keys are "other". Spans have the key itself.
//
// # Traces
//
// Each acquiring call has a span named etcdclaims.acquire, and each claim one named
// etcdclaims.hold. Both are children of the caller's span. If the caller has no span,
// etcdclaims.hold is a child of etcdclaims.acquire. The contexts of Run,
// Claim.Bind and Claim.Context carry the span of the claim, so that spans of the
// handler are its children. A context passed to Claim.Bind keeps the span that it has, if
// that is not the span of the acquiring call. If the previous holder handed the key over,
// the span of the claim usually links to that holder's span. For that purpose a sampled
// trace context is stored in etcd with the hand-over. There is no link if the holder died,
// or if the waiter sees the key change before it has the notice.
//
// # Cost
//
// Without an SDK, measuring a claim takes less than a microsecond.
//
// Nothing is kept for each key, except by a wrapped gate, which remembers the last fences of
// a bounded number of keys. Gauges are read when they are collected, without
// I/O, except those of WatchQueue and WatchWork.
package telemetry
