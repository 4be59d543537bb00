package telemetry

import (
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Buckets, in seconds. The SDK's own are for milliseconds.
var (
	requestBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	acquireBuckets  = append(slices.Clone(requestBuckets), 30, 60, 300, 900, 3600) // with the wait in line
	waitBuckets     = []float64{.005, .01, .05, .1, .5, 1, 5, 15, 30, 60, 300, 900, 3600}
	holdBuckets     = []float64{.005, .01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400}
	marginBuckets   = []float64{.1, .25, .5, 1, 2, 3, 4, 5, 7.5, 10, 15, 20, 30, 60}
	ratioBuckets    = []float64{.02, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .55, .6, .7, .8}
	latenessBuckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	processBuckets  = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
)

// The attributes of metrics and spans.
const (
	keyTemplate   = attribute.Key("etcdclaims.key.template")
	keyKey        = attribute.Key("etcdclaims.key") // of spans only
	keyFence      = attribute.Key("etcdclaims.fence")
	keyResult     = attribute.Key("etcdclaims.result")
	keyMode       = attribute.Key("etcdclaims.mode")
	keyReason     = attribute.Key("etcdclaims.reason")
	keyKind       = attribute.Key("etcdclaims.request.kind")
	keyGate       = attribute.Key("etcdclaims.gate")
	keyGroup      = attribute.Key("etcdclaims.group")
	keyJob        = attribute.Key("etcdclaims.job")
	keyOutcome    = attribute.Key("etcdclaims.outcome")
	keyPartitions = attribute.Key("etcdclaims.partition.state")
	keyWork       = attribute.Key("etcdclaims.work")
	keyWorkState  = attribute.Key("etcdclaims.work.state")
	keyState      = attribute.Key("etcdclaims.queue.item.state")
	keyQueue      = attribute.Key("messaging.destination.name")
	keyError      = attribute.Key("error.type")
)

// instruments are all instruments. A new one needs a line in docs/telemetry.md.
type instruments struct {
	acquire, wait, hold      metric.Float64Histogram
	ends, takeovers, zombies metric.Int64Counter
	suspicions               metric.Int64Counter
	margin, marginRatio      metric.Float64Histogram
	renewal, requestDuration metric.Float64Histogram
	requests, admissions     metric.Int64Counter
	fenceLag                 metric.Float64Histogram
	held, waiting, sessions  metric.Int64ObservableGauge
	overdueHandlers          metric.Int64ObservableGauge
	unreachable              metric.Int64ObservableGauge
	oldest, oldestCall       metric.Float64ObservableGauge
	lateness, runs           metric.Float64Histogram
	ticks, ownerChanges      metric.Int64Counter
	owner, running           metric.Int64ObservableGauge
	nextDue, overdue         metric.Float64ObservableGauge
	process, itemWait        metric.Float64Histogram
	items, dead              metric.Int64ObservableGauge
	oldestReady, paused      metric.Float64ObservableGauge
	pausedJobs               metric.Float64ObservableGauge
	work                     metric.Int64ObservableGauge
	members, partitions      metric.Int64ObservableGauge
}

// maker makes instruments of a meter, and collects the errors.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (mk *maker) histogram(to *metric.Float64Histogram, name, what, unit string, buckets []float64) {
	var err error
	*to, err = mk.meter.Float64Histogram(name,
		metric.WithDescription(what), metric.WithUnit(unit), metric.WithExplicitBucketBoundaries(buckets...))
	mk.errs = append(mk.errs, err)
}

func (mk *maker) counter(to *metric.Int64Counter, name, what, unit string) {
	var err error
	*to, err = mk.meter.Int64Counter(name, metric.WithDescription(what), metric.WithUnit(unit))
	mk.errs = append(mk.errs, err)
}

func (mk *maker) count(to *metric.Int64ObservableGauge, name, what, unit string) {
	var err error
	*to, err = mk.meter.Int64ObservableGauge(name, metric.WithDescription(what), metric.WithUnit(unit))
	mk.errs = append(mk.errs, err)
}

func (mk *maker) seconds(to *metric.Float64ObservableGauge, name, what string) {
	var err error
	*to, err = mk.meter.Float64ObservableGauge(name, metric.WithDescription(what), metric.WithUnit("s"))
	mk.errs = append(mk.errs, err)
}

// make makes the instruments.
func (i *instruments) make(m metric.Meter) error {
	mk := maker{meter: m}
	i.makeClaims(&mk)
	mk.histogram(&i.lateness, "etcdclaims.tick.lateness",
		"Time from when a scheduled tick should start to when its first attempt began.", "s", latenessBuckets)
	mk.histogram(&i.runs, "etcdclaims.run.duration", "Time that the handler of a tick took.", "s", holdBuckets)
	mk.counter(&i.ticks, "etcdclaims.tick.count", "Ticks and attempts, by what became of them.", "{tick}")
	mk.counter(&i.ownerChanges, "etcdclaims.owner.changes", "Times that the process became the owner of its group.", "{change}")
	mk.count(&i.owner, "etcdclaims.owner", "1 if the process is the owner of its group, else 0.", "")
	mk.count(&i.running, "etcdclaims.run.active", "Runs of the process now.", "{run}")
	mk.seconds(&i.nextDue, "etcdclaims.tick.next_due.timestamp", "When the next tick is due, in seconds since 1970; of the owner only.")
	mk.seconds(&i.overdue, "etcdclaims.tick.overdue", "Time since the oldest tick was due that is not admitted; of the owner only.")
	mk.seconds(&i.pausedJobs, "etcdclaims.job.paused",
		"Time for which a job of the group has been paused, the longest of them; 0 if none is; of the owner only.")
	mk.histogram(&i.process, "messaging.process.duration", "Time that the handler of an item took.", "s", processBuckets)
	mk.histogram(&i.itemWait, "etcdclaims.queue.item.wait.duration",
		"Time from when an item became visible to when a worker had it.", "s", waitBuckets)
	mk.count(&i.items, "etcdclaims.queue.items", "Items of a queue, by state.", "{item}")
	mk.count(&i.dead, "etcdclaims.queue.dead_letters", "Dead letters of a queue.", "{item}")
	mk.seconds(&i.paused, "etcdclaims.queue.paused", "Time for which the queue has been paused; 0 if it is not.")
	mk.seconds(&i.oldestReady, "etcdclaims.queue.oldest", "Time for which the oldest visible item has waited; 0 if none waits.")
	mk.count(&i.work, "etcdclaims.work.records", "Work with a record that is not done, by state.", "{record}")
	mk.count(&i.members, "etcdclaims.group.members", "Members of a group.", "{member}")
	mk.count(&i.partitions, "etcdclaims.group.partitions", "Partitions of a group, by whether they have an owner.", "{partition}")
	return errors.Join(mk.errs...)
}

func (i *instruments) makeClaims(mk *maker) {
	mk.histogram(&i.acquire, "etcdclaims.acquire.duration", "Time that calls took to acquire a key, or to fail.", "s", acquireBuckets)
	mk.histogram(&i.wait, "etcdclaims.wait.duration", "Time that calls stood in line for a key.", "s", waitBuckets)
	mk.histogram(&i.hold, "etcdclaims.hold.duration", "Time that claims were held.", "s", holdBuckets)
	mk.counter(&i.ends, "etcdclaims.claim.ends", "Claims that ended, by reason.", "{claim}")
	mk.counter(&i.takeovers, "etcdclaims.takeover.count", "Work that was begun after its owner had died.", "{claim}")
	mk.counter(&i.zombies, "etcdclaims.zombie.count", "Handlers that did not return within their drain.", "{handler}")
	mk.counter(&i.suspicions, "etcdclaims.suspicion.count",
		"Claims that were taken from clients that did not answer, by whether they were dead.", "{claim}")
	mk.histogram(&i.margin, "etcdclaims.renewal.margin", "Time that claims had left when their renewal was verified.", "s", marginBuckets)
	mk.histogram(&i.marginRatio, "etcdclaims.renewal.margin_ratio",
		"Share of the TTL that claims had left when their renewal was verified.", "1", ratioBuckets)
	mk.histogram(&i.renewal, "etcdclaims.renewal.duration", "Time that renewals took, with the verification.", "s", requestBuckets)
	mk.histogram(&i.requestDuration, "etcdclaims.request.duration", "Time that requests to etcd took.", "s", requestBuckets)
	mk.counter(&i.requests, "etcdclaims.request.count", "Requests to etcd.", "{request}")
	mk.counter(&i.admissions, "etcdclaims.fence.admissions", "Tokens that a gate was given, by result.", "{token}")
	mk.histogram(&i.fenceLag, "etcdclaims.fence.lag",
		"Time from when this process saw a newer fence admitted to when an older one was refused.", "s", waitBuckets)
	mk.count(&i.held, "etcdclaims.claim.held", "Claims held now.", "{claim}")
	mk.count(&i.waiting, "etcdclaims.call.waiting", "Calls that stand in line for a key now.", "{call}")
	mk.count(&i.sessions, "etcdclaims.session.open", "Leases that carry claims now.", "{session}")
	mk.count(&i.overdueHandlers, "etcdclaims.handler.overdue", "Handlers that run now though their drain is over.", "{handler}")
	mk.count(&i.unreachable, "etcdclaims.client.unreachable", "Clients of the process that get no answer from etcd now.", "{client}")
	mk.seconds(&i.oldest, "etcdclaims.claim.oldest", "Time for which the oldest of the claims held now is held.")
	mk.seconds(&i.oldestCall, "etcdclaims.call.oldest", "Age of the oldest call in progress that waits for its key; 0 without such a call.")
}

// gauges returns what collect observes.
func (i *instruments) gauges() []metric.Observable {
	return []metric.Observable{
		i.held, i.waiting, i.sessions, i.overdueHandlers, i.unreachable, i.oldest, i.oldestCall,
		i.owner, i.running, i.nextDue, i.overdue, i.pausedJobs,
		i.items, i.dead, i.paused, i.oldestReady, i.work, i.members, i.partitions,
	}
}

// options keeps the sets of attributes that measurements have had. There are as
// many as time series: their values are templates, names that the program has
// given, and constants of this package.
type options struct {
	mu   sync.RWMutex
	made map[series]option
}

// series is the values of up to four attributes.
type series struct {
	keys [4]attribute.Key
	vals [4]string
}

// with returns the series with one more attribute, unless its value is empty.
func (s series) with(key attribute.Key, val string) series {
	i := 0
	for i < len(s.keys) && s.keys[i] != "" {
		i++
	}
	if val != "" {
		s.keys[i], s.vals[i] = key, val
	}
	return s
}

// option is a set of attributes, ready for both kinds of instruments.
type option struct {
	record  []metric.RecordOption
	add     []metric.AddOption
	observe []metric.ObserveOption
}

// mostOptions bounds the sets that are kept. More are made anew each time.
const mostOptions = 10_000

// of returns the option for a series. Attributes with an empty key are left out.
func (o *options) of(s series) option {
	o.mu.RLock()
	made, ok := o.made[s]
	o.mu.RUnlock()
	if ok {
		return made
	}
	var attrs []attribute.KeyValue
	for i, key := range s.keys {
		if key != "" {
			attrs = append(attrs, key.String(s.vals[i]))
		}
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	made = option{[]metric.RecordOption{set}, []metric.AddOption{set}, []metric.ObserveOption{set}}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == nil {
		o.made = make(map[series]option)
	}
	if len(o.made) < mostOptions {
		o.made[s] = made
	}
	return made
}
