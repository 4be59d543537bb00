package sched

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/tick"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

// view is a copy of the keys under now/. It is fed by a watch, by reading all keys
// periodically, and by the transactions of this process. It can be out of date, so
// every transaction that is based on it has conditions.
//
// Code that needs more than single keys subscribes to a feed of changes and keeps an
// index of its own. So no code has to iterate over all keys to find changes.
type view struct {
	claims *etcdclaims.Client
	root   string
	log    *zap.Logger
	outage *oplog.Log

	mu      sync.Mutex
	kvs     map[string]kv
	count   map[string]int  // live keys by their directory
	begun   map[hold]string // the keys of runs, by their claims
	feeds   map[*feed]bool
	synced  chan struct{} // closed after the first complete read
	seen    int64         // the greatest revision of etcd that was seen
	rewind  chan struct{} // has an element when etcd was found to be restored
	rewound func()        // is called then
	stream  int           // the number of watch streams that hung; of follow alone
}

// hold is one ownership of a claim. Runs that began in one round trip have one revision.
type hold struct {
	claim string
	rev   int64
}

// kv is the last known state of a key.
type kv struct {
	value string
	rev   int64 // the revision of the put or the deletion
	gone  bool

	ready *ready // the decoded value of a waiting tick
	run   *run
}

// feed collects the changes since take was last called.
type feed struct {
	kinds   []string      // first words below the root
	news    chan struct{} // has an element when something changed
	changed map[string]kv // guarded by the view's mutex
}

// read decodes a value.
func (v *view) read(key, value string, rev int64) kv {
	is := kv{value: value, rev: rev}
	var err error
	switch v.kind(key) {
	case kindReady:
		var r ready
		if r, err = decode[ready](key, []byte(value)); err == nil {
			is.ready = &r
		}
	case kindRun:
		var r run
		if r, err = decode[run](key, []byte(value)); err == nil {
			is.run = r.At(rev)
		}
	}
	if err != nil {
		v.log.Error("tick ignored: its value cannot be read", zap.String("etcd_key", key), zap.Error(err))
	}
	return is
}

// The kinds of live keys: the first words below the root.
const (
	kindAsk      = "ask"
	kindPaused   = "paused"
	kindCancel   = "cancel"
	kindReady    = "ready"
	kindRun      = "run"
	kindWithdraw = "withdraw"
	kindStuck    = "stuck"
	kindReset    = "reset"
	kindDefined  = "defined"
)

func (v *view) kind(key string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, v.root), "/")
	return kind
}

// jobOf returns the digest of the job that a live key belongs to, and whether it
// is in the directory of the job's backfills.
func (v *view) jobOf(key string) (job string, backfill bool) {
	_, rest, _ := strings.Cut(strings.TrimPrefix(key, v.root), "/")
	job, _, _ = strings.Cut(rest, "/")
	return strings.CutSuffix(job, tick.BackfillDir)
}

// dir returns the key up to its third word: a directory of a job.
func (v *view) dir(key string) string {
	kind := strings.IndexByte(key[len(v.root):], '/')
	if kind < 0 {
		return key
	}
	start := len(v.root) + kind + 1
	if end := strings.IndexByte(key[start:], '/'); end >= 0 {
		return key[:start+end+1]
	}
	return key[:start]
}

const (
	relist   = 5 * time.Second // between complete reads; nothing else notices a watch that is silent by mistake
	readTime = 5 * time.Second // the timeout of one request

	reading = "read the live state"
)

func newView(claims *etcdclaims.Client, root string, log *zap.Logger, out *oplog.Log, rewound func()) *view {
	return &view{
		claims: claims, root: root, log: log, outage: out, kvs: make(map[string]kv), count: make(map[string]int), begun: make(map[hold]string),
		feeds: make(map[*feed]bool), synced: make(chan struct{}), rewind: make(chan struct{}, 1), rewound: rewound,
	}
}

// subscribe returns a feed of the kinds. It begins with all keys that exist.
func (v *view) subscribe(kinds ...string) *feed {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := &feed{kinds: kinds, news: make(chan struct{}, 1), changed: make(map[string]kv)}
	for key, is := range v.kvs {
		if !is.gone && slices.Contains(kinds, v.kind(key)) {
			f.changed[key] = is
		}
	}
	v.feeds[f] = true
	return f
}

func (v *view) unsubscribe(f *feed) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.feeds, f)
}

// take returns the changes since its last call.
func (v *view) take(f *feed) map[string]kv {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(f.changed) == 0 {
		return nil
	}
	changed := f.changed
	f.changed = make(map[string]kv)
	return changed
}

// hasNews reports whether there are changes in a directory since the last call of take.
func (v *view) hasNews(f *feed, dir string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key := range f.changed {
		if strings.HasPrefix(key, dir) {
			return true
		}
	}
	return false
}

// put and remove note a change that is known to have happened at a revision.
func (v *view) put(key, value string, rev int64) {
	if !v.knows(key, rev) {
		v.change(key, v.read(key, value, rev))
	}
}

// putTick and putRun are put for what this process has put itself.
func (v *view) putTick(w tick.Put, rev int64) {
	v.change(w.Key, kv{value: w.Value, rev: rev, ready: w.Ready})
}

func (v *view) putRun(key, value string, r *run, rev int64) {
	v.change(key, kv{value: value, rev: rev, run: r})
}

func (v *view) remove(key string, rev int64) { v.change(key, kv{rev: rev, gone: true}) }

func (v *view) change(key string, is kv) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = max(v.seen, is.rev)
	if have, ok := v.kvs[key]; !ok || have.rev < is.rev {
		v.set(key, is)
	}
}

// knows reports whether the state of a key at the revision is known, or a later one.
func (v *view) knows(key string, rev int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	have, ok := v.kvs[key]
	return ok && have.rev >= rev
}

// forget notes that the key no longer has the value of the revision.
func (v *view) forget(key string, rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if have, ok := v.kvs[key]; ok && have.rev == rev {
		v.set(key, kv{rev: rev, gone: true})
	}
}

// set is called with the mutex held. A deleted key is remembered until the next
// complete read, because older events may still arrive.
func (v *view) set(key string, is kv) {
	have, ok := v.kvs[key]
	v.kvs[key] = is
	was := ok && !have.gone
	if was && have.run != nil {
		delete(v.begun, hold{have.run.Claim, have.rev})
	}
	if !is.gone && is.run != nil {
		v.begun[hold{is.run.Claim, is.rev}] = key
	}
	dir := v.dir(key)
	switch {
	case was && is.gone:
		if v.count[dir]--; v.count[dir] == 0 {
			delete(v.count, dir)
		}
	case !was && !is.gone:
		v.count[dir]++
	case !was && is.gone:
		return
	}
	kind := v.kind(key)
	for f := range v.feeds {
		if slices.Contains(f.kinds, kind) {
			f.changed[key] = is
			signal(f.news)
		}
	}
}

// countIn returns how many live keys a directory of a job has.
func (v *view) countIn(dir string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count[dir]
}

// begunUnder reports whether a run is recorded that began when its claim was acquired at the
// revision.
func (v *view) begunUnder(claim string, rev int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.begun[hold{claim, rev}]
	return ok
}

// anyRuns reports whether any run is recorded.
func (v *view) anyRuns() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.begun) > 0
}

// runs returns the records of all runs.
func (v *view) runs() map[string]kv {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string]kv, len(v.begun))
	for _, key := range v.begun {
		out[key] = v.kvs[key]
	}
	return out
}

// get returns the state of one key.
func (v *view) get(key string) kv {
	v.mu.Lock()
	defer v.mu.Unlock()
	is, ok := v.kvs[key]
	if !ok {
		return kv{gone: true}
	}
	return is
}

// latest returns the greatest revision that was seen. A read that is sent after that, and
// returns a lower one, proves that etcd was restored from a backup.
func (v *view) latest() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}

// correct takes over keys that were read at the revision, by a request that was sent when
// the revision since was the latest. The keys of known that were not found are gone. It
// changes nothing, and returns false, if etcd was restored: all keys must be read then.
func (v *view) correct(found []*mvccpb.KeyValue, known []string, since, rev int64) bool {
	if rev < since {
		return false
	}
	there := make(map[string]bool, len(found))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = max(v.seen, rev)
	for _, got := range found {
		there[string(got.Key)] = true
		v.found(got, rev)
	}
	for _, key := range known {
		if have, ok := v.kvs[key]; ok && !have.gone && !there[key] && have.rev <= rev {
			v.set(key, kv{rev: rev, gone: true})
		}
	}
	return true
}

// replace takes over all keys, which were read as for correct. After a restore the view's
// revisions mean nothing: its keys give way to those that were read, and the watch has to
// begin anew.
func (v *view) replace(all []*mvccpb.KeyValue, since, rev int64) {
	there := make(map[string]bool, len(all))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = max(v.seen, rev)
	newest := rev
	if rev < since {
		v.seen, newest = rev, math.MaxInt64
		signal(v.rewind)
		v.rewound()
	}
	for _, got := range all {
		there[string(got.Key)] = true
		v.found(got, newest)
	}
	for key, is := range v.kvs {
		if !there[key] && is.rev <= newest {
			v.set(key, kv{rev: rev, gone: true})
			delete(v.kvs, key)
		}
	}
	select {
	case <-v.synced:
	default:
		close(v.synced)
	}
}

// found takes over a key that was read, unless the view's is newer than the read. The mutex
// is held.
func (v *view) found(got *mvccpb.KeyValue, newest int64) {
	key, value := string(got.Key), string(got.Value)
	have, ok := v.kvs[key]
	if ok && (have.rev > newest || !have.gone && have.rev == got.ModRevision && have.value == value) {
		return
	}
	v.set(key, v.read(key, value, got.ModRevision))
}
