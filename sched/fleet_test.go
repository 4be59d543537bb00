package sched_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	ttl    = 15 * time.Second
	prefix = "/p/"
)

// fleet is an etcd in virtual time and the processes that share a group, with a
// ledger of every run that any of them began.
type fleet struct {
	*testing.T
	server *claimtest.Server
	etcd   *clientv3.Client // nothing happens to its requests
	ledger *ledger
	cfg    sched.Config
	jobs   []sched.Job
	kinds  map[string]sched.KindHandler
	nodes  []*node

	operator  *sched.Scheduler
	label     string // of all processes
	claimsLog *zap.Logger
	compacted int64         // the oldest revision there is, if not the first
	wasReset  bool          // whether a mark may have been put back
	onNow     func(n *node) // called when a process reads its clock
}

// node is one process, on a machine of its own.
type node struct {
	f      *fleet
	name   string
	host   *claimtest.Host
	claims *etcdclaims.Client
	sched  *sched.Scheduler
	skew   atomic.Int64 // of its wall clock
	stop   func()
	ended  chan struct{}
	err    error // of Run, once ended is closed
}

// inFleet runs a test in virtual time.
func inFleet(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	testetcd.Sample(t)
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		f := &fleet{T: t, server: server, etcd: server.Etcd(t), ledger: &ledger{}}
		test(t, f)
		f.audit()
	})
}

// caseInFleet runs a subtest in virtual time.
func caseInFleet(t *testing.T, name string, test func(t *testing.T, f *fleet)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inFleet(t, test) })
}

// audit checks what is true of every fleet: no attempt was run twice, marks only
// moved forward, and runs of a job had rising fences.
func (f *fleet) audit() {
	f.Helper()
	f.ledger.once(f.T)
	now, err := f.etcd.Get(context.Background(), "x")
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	marks := map[string]string{}
	for resp := range f.etcd.Watch(ctx, prefix+"sched/", clientv3.WithPrefix(), clientv3.WithRev(max(f.compacted, 1)), clientv3.WithProgressNotify()) {
		if resp.Err() != nil {
			f.Fatal(resp.Err())
		}
		for _, ev := range resp.Events {
			k, v := string(ev.Kv.Key), string(ev.Kv.Value)
			if !strings.Contains(k, "/high/") {
				continue
			}
			if ev.Type == clientv3.EventTypeDelete {
				marks[k] = "" // by an operator
				continue
			}
			if v < marks[k] && !f.wasReset {
				f.Errorf("the mark %s went back from %s to %s", k, marks[k], v)
			}
			marks[k] = v
		}
		if len(resp.Events) == 0 || resp.Events[len(resp.Events)-1].Kv.ModRevision >= now.Header.Revision || resp.Header.Revision >= now.Header.Revision {
			break
		}
	}
}

// compact removes all revisions before another write.
func (f *fleet) compact() {
	f.Helper()
	resp, err := f.etcd.Put(f.Context(), "/x", "")
	noErr(f.T, err)
	f.compacted = resp.Header.Revision
	noErr(f.T, second(f.etcd.Compact(f.Context(), f.compacted)))
}

// history returns the records of a job, the oldest first, as "outcome nominal
// time".
func (f *fleet) history(job string) []string {
	f.Helper()
	var out []string
	for _, e := range f.entries(job) {
		out = append(out, fmt.Sprintf("%s %s", e.Outcome, e.Nominal.Format(time.TimeOnly)))
	}
	return out
}

func (f *fleet) entries(job string) []sched.Entry {
	f.Helper()
	s := f.console()
	var out []sched.Entry
	for e, err := range s.History(f.Context(), job) {
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, e)
	}
	slices.Reverse(out)
	return out
}

// console is a scheduler that runs nothing, as an operator's program has it.
func (f *fleet) console() *sched.Scheduler {
	f.Helper()
	if f.operator == nil {
		c := claimtest.NewClient(f.T, f.server, etcdclaims.Config{Prefix: prefix, Owner: "operator", TTL: ttl})
		s, err := sched.New(c, f.cfg)
		if err != nil {
			f.Fatal(err)
		}
		f.operator = s
	}
	return f.operator
}

func (f *fleet) inspect(job string) sched.JobInfo {
	f.Helper()
	i, err := f.console().Inspect(f.Context(), job)
	if err != nil {
		f.Fatal(err)
	}
	return i
}

// until sleeps until a time of the bubble's first day.
func (f *fleet) until(clock string) {
	f.Helper()
	at, err := time.Parse("15:04:05.999", clock)
	if err != nil {
		f.Fatal(err)
	}
	d := time.Until(time.Date(2000, 1, 1, at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), time.UTC))
	if d < 0 {
		f.Fatalf("it is past %s", clock)
	}
	time.Sleep(d)
}

// minutely is due at every full minute.
var minutely = sched.Must(sched.Every(time.Minute, 0))

// do adds a job whose runs take so long, or end with their context.
func (f *fleet) do(job sched.Job, takes time.Duration) {
	if job.Handler == nil {
		job.Handler = func(ctx context.Context, _ sched.Tick) error {
			if takes == 0 {
				return nil
			}
			select {
			case <-time.After(takes):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	f.jobs = append(f.jobs, job)
}

// start starts a process that has the jobs. Its handlers tell the ledger.
func (f *fleet) start(skew time.Duration) *node {
	f.Helper()
	n := &node{f: f, name: fmt.Sprint("node", len(f.nodes)), host: f.server.Host(f.T), ended: make(chan struct{})}
	n.skew.Store(int64(skew))
	label := n.name
	if f.label != "" {
		label = f.label
	}
	n.claims = claimtest.NewClient(f.T, n.host, etcdclaims.Config{Prefix: prefix, Owner: label, TTL: ttl, Logger: f.claimsLog})
	cfg := f.cfg
	cfg.Now = func() time.Time {
		if f.onNow != nil {
			f.onNow(n)
		}
		return time.Now().Add(time.Duration(n.skew.Load()))
	}
	var err error
	if n.sched, err = sched.New(n.claims, cfg); err != nil {
		f.Fatal(err)
	}
	for _, j := range f.jobs {
		j.Handler = f.ledger.record(n.name, j.Handler)
		if err := n.sched.Add(j); err != nil {
			f.Fatal(err)
		}
	}
	for kind, h := range f.kinds {
		noErr(f.T, n.handle(kind, h))
	}
	ctx, cancel := context.WithCancel(f.Context())
	go func() {
		defer close(n.ended)
		n.err = n.sched.Run(ctx)
	}()
	n.stop = func() { cancel(); <-n.ended }
	f.nodes = append(f.nodes, n)
	f.Cleanup(func() { n.host.RemoveFaults(); n.host.Heal(); n.stop() })
	return n
}

// handle registers a function for a kind, whose runs tell the ledger.
func (n *node) handle(kind string, h sched.KindHandler) error {
	return n.sched.Handle(kind, func(ctx context.Context, tick sched.Tick, payload json.RawMessage) error {
		return n.f.ledger.record(n.name, func(ctx context.Context, tick sched.Tick) error { return h(ctx, tick, payload) })(ctx, tick)
	})
}

// kill ends the process for etcd and for the ledger: what it does from here on
// nobody sees.
func (n *node) kill() {
	n.f.ledger.mute(n.name)
	n.host.Kill()
}

// deafens lets the watches of a process that has just been started hear nothing while the
// flag is set.
func (n *node) deafens() *atomic.Bool {
	deaf := new(atomic.Bool)
	n.host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, Edit: func(reply any) {
		if deaf.Load() {
			reply.(*pb.WatchResponse).Events = nil
		}
	}})
	return deaf
}

// slows delays each request of the process a little, and counts them.
func (n *node) slows() *claimtest.Injection {
	return n.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayRequest: 2 * time.Millisecond})
}

func (f *fleet) owner() *node {
	for _, n := range f.nodes {
		if n.sched.Owner() && !f.ledger.muted(n.name) {
			return n
		}
	}
	return nil
}

// key is one of etcd's, with its value.
type key struct {
	name, value string
	rev         int64
}

// under reads what is in etcd below the prefix of schedules, by a part of the key.
func (f *fleet) under(part string) []key {
	f.Helper()
	resp, err := f.etcd.Get(context.Background(), prefix+"sched/", clientv3.WithPrefix())
	if err != nil {
		f.Fatal(err)
	}
	var out []key
	for _, kv := range resp.Kvs {
		if strings.Contains(string(kv.Key), part) {
			out = append(out, key{string(kv.Key), string(kv.Value), kv.ModRevision})
		}
	}
	return out
}

// deed is one run of a handler.
type deed struct {
	sched.Tick
	By    string
	From  time.Time
	Until time.Time // zero while it goes on
	Err   error
	Token fencing.Token
}

func (d deed) String() string {
	return fmt.Sprintf("%s by %s at %s, attempt %d", d.ID(), d.By, d.From.Format(time.TimeOnly+".000"), d.Attempt)
}

// ledger records every run.
type ledger struct {
	mu    sync.Mutex
	deeds []*deed
	dead  map[string]bool
}

func (l *ledger) record(by string, h func(context.Context, sched.Tick) error) func(context.Context, sched.Tick) error {
	return func(ctx context.Context, tick sched.Tick) error {
		token, _ := fencing.FromContext(ctx)
		d := &deed{Tick: tick, By: by, From: time.Now(), Token: token}
		l.mu.Lock()
		if l.dead[by] {
			l.mu.Unlock()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		l.deeds = append(l.deeds, d)
		l.mu.Unlock()
		err := context.Canceled // unless it returns
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			d.Until, d.Err = time.Now(), err
		}()
		err = h(ctx, tick)
		return err
	}
}

func (l *ledger) mute(by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead == nil {
		l.dead = make(map[string]bool)
	}
	l.dead[by] = true
}

func (l *ledger) muted(by string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead[by]
}

// all returns the runs of a job in the order in which they began.
func (l *ledger) all(job string) []deed {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []deed
	for _, d := range l.deeds {
		if job == "" || d.Job == job {
			out = append(out, *d)
		}
	}
	return out
}

// nominals returns the nominal times of a job's runs, as times of day.
func (l *ledger) nominals(job string) []string {
	var out []string
	for _, d := range l.all(job) {
		out = append(out, d.Nominal.Format("15:04:05"))
	}
	return out
}

// once fails the test if a tick was run twice: an attempt, that is.
func (l *ledger) once(t *testing.T) {
	t.Helper()
	seen := map[string]deed{}
	for _, d := range l.all("") {
		id := fmt.Sprint(d.ID(), " attempt ", d.Attempt)
		if first, twice := seen[id]; twice {
			t.Errorf("run twice: %v, and %v", first, d)
		}
		seen[id] = d
	}
}

// want fails the test unless exactly these ticks of the job were run, in this
// order.
func (l *ledger) want(t *testing.T, job string, want ...string) {
	t.Helper()
	l.once(t)
	if got := l.nominals(job); !slices.Equal(got, want) {
		t.Errorf("%s ran at %v, want %v", job, got, want)
	}
}
