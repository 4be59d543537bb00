// Package simulation runs clients of claims against the real etcd in virtual
// time, lets random faults happen to them, and judges what they were told and
// did by what etcd has seen.
//
// A run is one testing/synctest bubble: a member of etcd, some processes with
// workers that claim, wait, write and finish work, a nemesis, and an observer
// that nothing happens to. A seed fixes what they choose, not how goroutines
// interleave: see [Run].
package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/history"
	"github.com/etcdclaims/claims/internal/testclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Plan is what a run does.
type Plan struct {
	Seed  uint64
	For   time.Duration // of faults; quiet follows
	Queue bool          // there is one, whatever the seed
}

// Outcome is what a run showed.
type Outcome struct {
	History *history.History
	Faults  []string // what violated the rules, apart from what History.Check finds
	Counts  map[string]int
	trace   *trace
}

// Keep writes the history, and what happened in etcd, to files of a directory.
func (o *Outcome) Keep(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var history, changes bytes.Buffer
	if err := o.History.Write(&history); err != nil {
		return err
	}
	for _, c := range o.trace.changes {
		fmt.Fprintln(&changes, c)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "history.jsonl"), history.Bytes(), 0o600),
		os.WriteFile(filepath.Join(dir, "etcd.txt"), changes.Bytes(), 0o600),
		os.WriteFile(filepath.Join(dir, "violations.txt"), []byte(strings.Join(o.Faults, "\n")), 0o600),
	)
}

// Check judges the run, its history included.
func (o *Outcome) Check() error {
	err := o.History.Check(history.Checks{Grace: grace})
	if len(o.Faults) > 0 {
		err = errors.Join(errors.New(strings.Join(o.Faults, "\n")), err)
	}
	return err
}

// grace is how long a holder may go on whose key was taken away behind its back
// while it could not be told: until its own deadline.
const grace = longTTL + time.Second

const (
	shortTTL = 5 * time.Second
	longTTL  = 15 * time.Second
	quiet    = 4 * longTTL // what a zombie's lease takes, after a restart of etcd
	patience = 30 * time.Minute
)

// world is one run.
type world struct {
	testing.TB
	plan    Plan
	rng     *rand.Rand // of the nemesis
	server  *claimtest.Server
	auth    bool
	history *history.History
	trace   *trace
	ledger  ledger
	queue   *queueing // nil: none

	keys []string // claimed over and over
	line string   // the one that most wait for

	slotCount atomic.Int64 // how many slots slottedKey has, as far as known; 0: the key is not claimed

	slots []*process // the processes that live
	old   []*process

	later    sync.WaitGroup // what the nemesis left for later
	isolated atomic.Bool    // all processes are cut off
	settling atomic.Bool    // the nemesis rests
	restored atomic.Bool    // a snapshot was

	mu     sync.Mutex
	counts map[string]int
	faults []string
	jobs   int // created so far
}

// Run does what the plan says. It must be called inside a bubble of its own.
func Run(tb testing.TB, plan Plan) *Outcome {
	tb.Helper()
	w := &world{
		TB: tb, plan: plan, rng: rand.New(rand.NewPCG(plan.Seed, 0)),
		history: history.New(), counts: make(map[string]int),
	}
	var opts []claimtest.Option
	if w.auth = w.rng.IntN(32) == 0; w.auth {
		opts = append(opts, claimtest.Auth())
	}
	if w.rng.IntN(4) == 0 {
		opts = append(opts, testclaims.MaxTxnOps(16))
	}
	tb.Cleanup(w.abort)
	w.server = claimtest.Start(tb, opts...)
	w.trace = newTrace(w)
	w.trace.follow()
	for i := range 2 + w.rng.IntN(3) {
		w.keys = append(w.keys, fmt.Sprintf("k%d", i))
	}
	w.line = w.keys[0]
	if w.has(slottedKey) {
		w.slotCount.Store(1 + int64(plan.Seed/3%mostSlots))
	}
	w.queue = newQueueing(w)
	for slot := range 3 + w.rng.IntN(6) {
		w.slots = append(w.slots, w.newProcess(slot, 0))
	}
	w.nemesis(time.Now().Add(plan.For))
	w.settle()
	return &Outcome{History: w.history, Faults: w.faults, Counts: w.counts, trace: w.trace}
}

// abort ends what goes on, after a run that could not be carried out.
func (w *world) abort() {
	for _, p := range w.slots {
		p.cancel()
	}
	for _, p := range w.slots {
		p.wg.Wait()
	}
	w.later.Wait()
	if w.trace != nil && w.trace.cancel != nil {
		w.trace.cancel()
		<-w.trace.done
	}
}

// settle ends the run: all is healed, all stop, and nothing may be left.
func (w *world) settle() {
	w.settling.Store(true)
	w.healAll()
	w.later.Wait()
	w.healAll()
	w.history.Logf("quiet")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, p := range slices.Concat(w.slots, w.old) {
		p.stop()
		p.closeQueue(patience)
	}
	w.finishJobs()
	w.drainQueue(ctx)
	time.Sleep(quiet)
	w.forgetSlots(ctx)
	w.forgetShared(ctx)
	w.nothingHeld("after quiet, with all clients open")
	for _, p := range w.slots {
		if err := p.client.Close(ctx); err != nil {
			w.fault("closing %s in peace: %v", p.name, err)
		}
	}
	time.Sleep(quiet)
	w.nothingLeft()
	w.trace.stop()
	w.trace.judge()
}

// fault notes a violation.
func (w *world) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.history.Logf("VIOLATION: %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, text)
}

// faultIf notes a violation if there is one.
func (w *world) faultIf(violated bool, format string, args ...any) {
	if violated {
		w.fault(format, args...)
	}
}

func (w *world) count(what string) { w.counts1(what, 1) }

func (w *world) counts1(what string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what] += n
}

// nothingHeld fails if a key is held, or somebody in line, while nobody works.
func (w *world) nothingHeld(when string) {
	for _, kv := range w.get("/", clientv3.WithPrefix()).Kvs {
		key, value := string(kv.Key), kv.Value
		for _, part := range []string{"own/", "note/", "wait/"} {
			w.faultIf(strings.HasPrefix(key, prefix+part), "%s: %s = %s", when, key, value)
		}
		w.faultIf(strings.HasPrefix(key, prefix+"session/") && strings.Contains(key, "/won/"),
			"%s: word of a hand-over is kept: %s = %s", when, key, value)
	}
}

// nothingLeft fails if more is left than records of work and of operators, or leases other than
// those of work.
func (w *world) nothingLeft() {
	kept := func(key string) bool {
		return strings.HasPrefix(key, prefix+"work/") || strings.HasPrefix(key, prefix+"audit/") ||
			strings.HasPrefix(key, queueRoot) || key == prefix+"epoch"
	}
	for _, kv := range w.get("/", clientv3.WithPrefix()).Kvs {
		key, value := string(kv.Key), kv.Value
		if strings.HasPrefix(key, prefix) && !kept(key) {
			w.fault("left over in the end: %s = %s", key, value)
		}
	}
	w.admin("reading leases", func(ctx context.Context, etcd *clientv3.Client) error {
		leases, err := etcd.Leases(ctx)
		if err != nil {
			return err
		}
		for _, l := range leases.Leases {
			ttl, err := etcd.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
			if err != nil {
				return err
			}
			w.faultIf(ttl.GrantedTTL <= int64(2*longTTL/time.Second) && ttl.TTL > 0,
				"left over in the end: lease %x of %d s with %q", l.ID, ttl.GrantedTTL, ttl.Keys)
		}
		return nil
	})
}

// get reads etcd.
func (w *world) get(key string, opts ...clientv3.OpOption) (resp *clientv3.GetResponse) {
	w.admin("reading etcd", func(ctx context.Context, etcd *clientv3.Client) (err error) {
		resp, err = etcd.Get(ctx, key, opts...)
		return err
	})
	return resp
}

// admin makes calls that must succeed, by a client that nothing happens to.
func (w *world) admin(what string, f func(ctx context.Context, etcd *clientv3.Client) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f(ctx, w.server.Admin()); err != nil {
		w.Fatalf("simulation: seed %d: %s: %v", w.plan.Seed, what, err)
	}
}

// Exercised are counts of what must occur in many runs: if one stays zero the
// simulation has ceased to try it.
var Exercised = []string{
	"bursts", "batches of several calls", "batches with operations of callers", "batches of two levels",
	"batches split by lease", "batches sent again, voided by one of the calls", "batches sent again, refused",
	"batches that a fault hit", "keys handed over", "handoff notices lost", "judged: claims that nobody was told of",
	"judged: owners beside the one before", "judged: keys that were to be held for a while", "hot keys",
	"judged: releases of hot keys", "events of watches lost", "judged: turns of the deaf",
	"fault: process closed under its workers", "slots granted", "slots resized", "shared claims granted",
	"judged: shared terms", "suspicions", "judged: keys handed past the line by preference", "judged: acquisitions with Then",
	"keys had again by their holders", "processes far from etcd", "judged: items completed", "judged: items recovered",
	"judged: items given back", "judged: items in order", "judged: items in order of their age", "judged: items taken and nobody told",
	"judged: items taken from a backlog", "judged: items completed in batches",
}

// Summary adds up the counts of runs, for people.
func Summary(counts map[string]int) string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%10d %s\n", counts[what], what)
	}
	return b.String()
}
