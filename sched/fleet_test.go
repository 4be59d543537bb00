package sched_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	ttl    = 15 * time.Second
	prefix = "/p/"
)

// kindHandler is the function of a kind.
type kindHandler = func(ctx context.Context, t sched.Tick, payload json.RawMessage) error

// clock returns a time of the bubble's first day.
func clock(text string) time.Time {
	at, err := time.Parse("15:04:05", text)
	if err != nil {
		panic(err)
	}
	return time.Date(2000, 1, 1, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
}

// fleet is an etcd in virtual time and the processes that share a group, with a
// ledger of every run that any of them began.
type fleet struct {
	*testing.T
	server *claimtest.Server
	etcd   *clientv3.Client // nothing happens to its requests
	ledger *ledger
	cfg    sched.Config
	jobs   []sched.Job
	kinds  map[string]kindHandler
	nodes  []*node

	operator  *sched.Scheduler
	label     string // of all processes
	claimsLog *zap.Logger
	compacted int64         // the oldest revision there is, if not the first
	wasReset  bool          // whether a mark may have been put back
	onNow     func(n *node) // called when a process has read its clock
}

// inFleet runs a test in virtual time.
func inFleet(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	testetcd.Sample(t)
	synctest.Test(t, func(t *testing.T) {
		server := claimtest.Start(t)
		f := &fleet{T: t, server: server, etcd: server.Etcd(t), ledger: &ledger{}, cfg: sched.Config{Group: "default"}}
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
var minutely = calendar.Must(calendar.Every(time.Minute, 0))

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

func (f *fleet) owner() *node {
	for _, n := range f.nodes {
		if n.sched.IsOwner() && !f.ledger.muted(n.name) {
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

// wantHistory fails the test unless the job has these records, the oldest first.
func (f *fleet) wantHistory(job string, want ...string) {
	f.Helper()
	if got := f.history(job); !slices.Equal(got, want) {
		f.Errorf("records of %s: %v, want %v", job, got, want)
	}
}
