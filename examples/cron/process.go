package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"github.com/etcdclaims/claims/sched"
)

// processCommand is the argument that makes this program one of the four.
const processCommand = "process"

// ttl is the least that a client accepts.
const ttl = 5 * time.Second

// A setup is what a process is told first, on its standard input. Then follow
// durations, by which its clock is to be wrong. When there are no more it ends.
type setup struct {
	Name      string
	Endpoints []string
	Prefix    string // of all keys
	Start     time.Time
	Work      time.Duration
}

// claims is the prefix of what belongs to the claims, and records of what the
// handlers write.
func (s setup) claims() string  { return s.Prefix + "claims/" }
func (s setup) records() string { return s.Prefix + "ran/" }

// An event is what a process tells its parent, for people to look at.
type event struct {
	Owner string // of the group it is the owner now
	Began string // job
	Ended string // job
}

// A record is what a handler writes of its run.
type record struct {
	Tick    string // its ID
	Job     string
	Nominal time.Time
	Manual  bool
	Attempt int
	Fence   int64
	By      string
	Ended   bool // it came to its end; else it has only begun
}

type process struct {
	setup
	etcd   *clientv3.Client
	claims *etcdclaims.Client
	skew   atomic.Int64
	tell   func(event)
}

// runProcess is the whole of a process.
func runProcess(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	orders, p := json.NewDecoder(in), &process{tell: teller(out)}
	if err := orders.Decode(&p.setup); err != nil {
		return err
	}
	p.etcd, err = clientv3.New(clientv3.Config{Endpoints: p.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.etcd.Close()) }()
	p.claims, err = etcdclaims.New(p.etcd, etcdclaims.Config{Prefix: p.setup.claims(), Owner: p.Name, TTL: ttl, Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.claims.Close(context.WithoutCancel(ctx))) }()

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for group, c := range clocks(p.Start) {
		s, err := p.scheduler(group, c)
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				stop(fmt.Errorf("group %s: %w", group, err))
			}
		})
	}
	go func() {
		var by time.Duration
		for orders.Decode(&by) == nil {
			p.skew.Store(int64(by))
		}
		stop(io.EOF) // the parent has no more to say, or is gone
	}()
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// scheduler has the jobs of a group.
func (p *process) scheduler(group string, c clock) (*sched.Scheduler, error) {
	s, err := sched.New(p.claims, sched.Config{
		Group:  group,
		Spread: true, // all processes run what the owner admits
		Now:    func() time.Time { return c.now(time.Duration(p.skew.Load())) },
		Hooks:  sched.Hooks{Elected: func(int64) { p.tell(event{Owner: group}) }},
	})
	if err != nil {
		return nil, err
	}
	for _, w := range works(p.Work) {
		if w.group != group {
			continue
		}
		w.job.Handler = func(ctx context.Context, t sched.Tick) error { return p.handle(ctx, w, t) }
		if err := s.Add(w.job); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// handle is the handler of all jobs.
func (p *process) handle(ctx context.Context, w work, t sched.Tick) error {
	p.tell(event{Began: t.Job})
	r := record{Tick: t.ID(), Job: t.Job, Nominal: t.Nominal, Manual: t.Manual, Attempt: t.Attempt, Fence: t.Fence, By: p.Name}
	if err := p.write(ctx, r); err != nil {
		return err
	}
	select {
	case <-time.After(w.takes):
	case <-ctx.Done():
		return context.Cause(ctx) // nobody can use what comes after
	}
	r.Ended = true
	if err := p.write(ctx, r); err != nil {
		return err
	}
	p.tell(event{Ended: t.Job})
	return w.err
}

// write stores the record. Its key has the fence, so that a second run of the tick
// would not hide the first; and it is guarded by the fence, so that etcd refuses it
// if this run is over for all others.
func (p *process) write(ctx context.Context, r record) error {
	token, _ := fencing.FromContext(ctx)
	kv := etcdguard.NewKV(p.etcd, etcdguard.Bearer(p.claims.Prefix(), token))
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	for {
		_, err = kv.Put(ctx, fmt.Sprintf("%s%s/%d/%d", p.records(), r.Tick, r.Attempt, r.Fence), string(value))
		if !errors.Is(err, fencing.ErrUnknown) || ctx.Err() != nil {
			return err
		}
		// To write the same once more does no harm.
	}
}

// teller returns a function that writes events, from any goroutine.
func teller(out io.Writer) func(event) {
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = enc.Encode(e) // without a parent there is nobody to tell, and the end comes soon
	}
}
