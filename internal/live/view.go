// Package live has a copy of what is in progress in a group of schedules: of the keys under now/.
package live

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/internal/oplog"
	"github.com/etcdclaims/claims/internal/tick"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// View is a copy of the keys under now/. It is fed by a watch, by reading all keys
// periodically, and by the transactions of this process. It can be out of date, so
// every transaction that is based on it has conditions.
//
// Code that needs more than single keys subscribes to a feed of changes and keeps an
// index of its own. So no code has to iterate over all keys to find changes.
type View struct {
	etcd    clientv3.KV
	watcher clientv3.Watcher
	root    string
	log     *zap.Logger
	ends    *oplog.Log // of requests

	mu      sync.Mutex
	kvs     map[string]KV
	count   map[string]int  // live keys by their directory
	begun   map[hold]string // the keys of runs, by their claims
	feeds   map[*Feed]bool
	Synced  chan struct{} // closed after the first complete read of a Follow
	seen    int64         // the greatest revision of etcd that was seen
	listed  int64         // the revision of the newest complete read
	rewind  chan struct{} // has an element when etcd was found to be restored
	rewound func()        // is called then
	stream  int           // the number of watch streams that hung; of follow alone
}

// hold is one ownership of a claim. Runs that began in one round trip have one revision.
type hold struct {
	claim string
	rev   int64
}

// KV is the last known state of a key.
type KV struct {
	Value string
	Rev   int64 // the revision of the put or the deletion
	Gone  bool

	Ready *tick.Ready // the decoded value of a waiting tick
	Run   *tick.Run
	Slot  *tick.Holder
}

// read decodes a value.
func (v *View) read(key, value string, rev int64) KV {
	is := KV{Value: value, Rev: rev}
	what, err := "tick ignored: its value cannot be read", error(nil)
	switch v.Kind(key) {
	case KindReady:
		var r tick.Ready
		if r, err = tick.Decode[tick.Ready](key, []byte(value)); err == nil {
			is.Ready = &r
		}
	case KindRun:
		var r tick.Run
		if r, err = tick.Decode[tick.Run](key, []byte(value)); err == nil {
			is.Run = r.At(rev)
		}
	case KindSlot:
		what = "slot counts as taken: its value cannot be read"
		var h tick.Holder
		if h, err = tick.Decode[tick.Holder](key, []byte(value)); err == nil {
			is.Slot = &h
		}
	}
	if err != nil {
		v.log.Error(what, zap.String("etcd_key", key), zap.Error(err))
	}
	return is
}

// The kinds of live keys: the first words below the root.
const (
	KindAsk      = "ask"
	KindHeir     = "heir"
	KindPaused   = "paused"
	KindHalt     = "halt"
	KindCancel   = "cancel"
	KindReady    = "ready"
	KindRun      = "run"
	KindSlot     = "slot"
	KindWithdraw = "withdraw"
	KindStuck    = "stuck"
	KindReset    = "reset"
	KindDefined  = "defined"
)

// Kind returns the kind of a live key.
func (v *View) Kind(key string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, v.root), "/")
	return kind
}

// JobOf returns the digest of the job that a live key belongs to, and whether it
// is in the directory of the job's backfills.
func (v *View) JobOf(key string) (job string, backfill bool) {
	_, rest, _ := strings.Cut(strings.TrimPrefix(key, v.root), "/")
	job, _, _ = strings.Cut(rest, "/")
	return strings.CutSuffix(job, tick.BackfillDir)
}

// Dir returns the key up to its third word: a directory of a job.
func (v *View) Dir(key string) string {
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

// New returns a view of the keys with the prefix root. It calls rewound when etcd was found to be
// restored from a backup.
func New(etcd clientv3.KV, watcher clientv3.Watcher, root string, log *zap.Logger, ends *oplog.Log, rewound func()) *View {
	return &View{
		etcd: etcd, watcher: watcher, root: root, log: log, ends: ends,
		kvs: make(map[string]KV), count: make(map[string]int), begun: make(map[hold]string),
		feeds: make(map[*Feed]bool), Synced: make(chan struct{}), rewind: make(chan struct{}, 1), rewound: rewound,
	}
}

// IsSynced reports whether all keys were read.
func (v *View) IsSynced() bool {
	select {
	case <-v.Synced:
		return true
	default:
		return false
	}
}

// Put and remove note a change that is known to have happened at a revision.
func (v *View) Put(key, value string, rev int64) {
	if !v.knows(key, rev) {
		v.change(key, v.read(key, value, rev))
	}
}

// PutTick is Put for a record of a tick that this process has put itself.
func (v *View) PutTick(w tick.Put, rev int64) {
	v.change(w.Key, KV{Value: w.Value, Rev: rev, Ready: w.Ready})
}

// PutRun is the same for a run.
func (v *View) PutRun(key, value string, r *tick.Run, rev int64) {
	v.change(key, KV{Value: value, Rev: rev, Run: r})
}

// Remove notes that a key was deleted at the revision.
func (v *View) Remove(key string, rev int64) { v.change(key, KV{Rev: rev, Gone: true}) }

func (v *View) change(key string, is KV) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = max(v.seen, is.Rev)
	if !v.isOld(key, is.Rev) {
		v.set(key, is)
	}
}

// knows reports whether the state of a key at the revision is known, or a later one.
func (v *View) knows(key string, rev int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.isOld(key, rev)
}

// isOld is knows with the mutex held. A key that the newest complete read did not find was
// gone by then.
func (v *View) isOld(key string, rev int64) bool {
	if have, ok := v.kvs[key]; ok {
		return have.Rev >= rev
	}
	return rev <= v.listed
}

// Forget notes that the key no longer has the value of the revision.
func (v *View) Forget(key string, rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if have, ok := v.kvs[key]; ok && have.Rev == rev {
		v.set(key, KV{Rev: rev, Gone: true})
	}
}

// set is called with the mutex held. A deleted key is remembered until the next
// complete read, because older events may still arrive.
func (v *View) set(key string, is KV) {
	have, ok := v.kvs[key]
	v.kvs[key] = is
	was := ok && !have.Gone
	if was && have.Run != nil {
		delete(v.begun, hold{have.Run.Claim, have.Rev})
	}
	if !is.Gone && is.Run != nil {
		v.begun[hold{is.Run.Claim, is.Rev}] = key
	}
	dir := v.Dir(key)
	switch {
	case was && is.Gone:
		if v.count[dir]--; v.count[dir] == 0 {
			delete(v.count, dir)
		}
	case !was && !is.Gone:
		v.count[dir]++
	case !was && is.Gone:
		return
	}
	kind := v.Kind(key)
	for f := range v.feeds {
		if slices.Contains(f.kinds, kind) {
			f.changed[key] = is
			signal(f.News)
		}
	}
}

// CountIn returns how many live keys a directory of a job has.
func (v *View) CountIn(dir string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count[dir]
}

// BegunUnder reports whether a run is recorded that began when its claim was acquired at the
// revision.
func (v *View) BegunUnder(claim string, rev int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.begun[hold{claim, rev}]
	return ok
}

// AnyRuns reports whether any run is recorded.
func (v *View) AnyRuns() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.begun) > 0
}

// Runs returns the records of all runs.
func (v *View) Runs() map[string]KV {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string]KV, len(v.begun))
	for _, key := range v.begun {
		out[key] = v.kvs[key]
	}
	return out
}

// Get returns the state of one key.
func (v *View) Get(key string) KV {
	v.mu.Lock()
	defer v.mu.Unlock()
	is, ok := v.kvs[key]
	if !ok {
		return KV{Gone: true}
	}
	return is
}

// Latest returns the greatest revision that was seen. A read that is sent after that, and
// returns a lower one, proves that etcd was restored from a backup.
func (v *View) Latest() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}

// Correct takes over keys that were read at the revision, by a request that was sent when
// the revision since was the latest. The keys of known that were not found are gone. It
// changes nothing, and returns false, if etcd was restored: all keys must be read then.
func (v *View) Correct(found []*mvccpb.KeyValue, known []string, since, rev int64) bool {
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
		if have, ok := v.kvs[key]; ok && !have.Gone && !there[key] && have.Rev <= rev {
			v.set(key, KV{Rev: rev, Gone: true})
		}
	}
	return true
}

// replace takes over all keys, which were read as for correct. After a restore the view's
// revisions mean nothing: its keys give way to those that were read, and the watch has to
// begin anew. A read that is older than the newest one changes nothing.
func (v *View) replace(all []*mvccpb.KeyValue, since, rev int64) {
	there := make(map[string]bool, len(all))
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = max(v.seen, rev)
	newest := rev
	if rev < since {
		v.seen, newest = rev, math.MaxInt64
		signal(v.rewind)
		v.rewound()
	} else if rev < v.listed {
		return
	}
	v.listed = rev
	for _, got := range all {
		there[string(got.Key)] = true
		v.found(got, newest)
	}
	for key, is := range v.kvs {
		if !there[key] && is.Rev <= newest {
			v.set(key, KV{Rev: rev, Gone: true})
			delete(v.kvs, key)
		}
	}
	if !v.IsSynced() {
		close(v.Synced)
	}
}

// found takes over a key that was read, unless the view's is newer than the read. The mutex
// is held.
func (v *View) found(got *mvccpb.KeyValue, newest int64) {
	key, value := string(got.Key), string(got.Value)
	have, ok := v.kvs[key]
	if !ok && newest < v.listed {
		return // it was gone at the newest complete read
	}
	if ok && (have.Rev > newest || !have.Gone && have.Rev == got.ModRevision && have.Value == value) {
		return
	}
	v.set(key, v.read(key, value, got.ModRevision))
}
