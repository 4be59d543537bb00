package sched

import (
	"context"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// view is what this process has heard of all that is live: from a watch, from
// reading everything again and again, and from what it did itself. It is a hint:
// whatever is done because of it is done under conditions.
type view struct {
	etcd *clientv3.Client
	root string
	log  *zap.Logger

	mu     sync.Mutex
	kvs    map[string]map[string]kv // by the first word below the root
	heard  []chan struct{}          // told of changes
	synced chan struct{}            // closed when it was read once
}

// kv is a key as it was heard of, or that it is gone.
type kv struct {
	value string
	rev   int64 // at which it was put, or deleted
	gone  bool

	ready *ready // what the value says, if it is of a tick
	run   *run
}

// read makes sense of a value.
func (v *view) read(key, value string, rev int64) kv {
	is := kv{value: value, rev: rev}
	var err error
	switch v.kind(key) {
	case "ready":
		var r ready
		if r, err = decode[ready](key, []byte(value)); err == nil {
			is.ready = &r
		}
	case "run":
		var r run
		if r, err = decode[run](key, []byte(value)); err == nil {
			is.run = &r
		}
	}
	if err != nil {
		v.log.Error("a tick cannot be read, and is left alone", zap.Error(err))
	}
	return is
}

func (v *view) kind(key string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, v.root), "/")
	return kind
}

// of returns the keys of the same kind as the key or prefix; the mutex is held.
func (v *view) of(key string) map[string]kv {
	kind := v.kind(key)
	if v.kvs[kind] == nil {
		v.kvs[kind] = make(map[string]kv)
	}
	return v.kvs[kind]
}

const (
	relist   = 5 * time.Second // a watch that is silent for no good reason is not noticed otherwise
	readTime = 5 * time.Second // of one request
)

func newView(etcd *clientv3.Client, root string, log *zap.Logger) *view {
	return &view{etcd: etcd, root: root, log: log, kvs: make(map[string]map[string]kv), synced: make(chan struct{})}
}

// listen returns a channel that has an element whenever something changed.
func (v *view) listen() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	ch := make(chan struct{}, 1)
	v.heard = append(v.heard, ch)
	return ch
}

// deaf ends what listen began.
func (v *view) deaf(ch <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, h := range v.heard {
		if h == ch {
			v.heard = append(v.heard[:i:i], v.heard[i+1:]...)
			return
		}
	}
}

// tell is called with the mutex held.
func (v *view) tell() {
	for _, ch := range v.heard {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// put and remove note what is known to have happened at a revision.
func (v *view) put(key, value string, rev int64) { v.note(key, v.read(key, value, rev)) }
func (v *view) remove(key string, rev int64)     { v.note(key, kv{rev: rev, gone: true}) }

func (v *view) note(key string, is kv) {
	v.mu.Lock()
	defer v.mu.Unlock()
	kvs := v.of(key)
	if have, ok := kvs[key]; ok && have.rev >= is.rev {
		return
	}
	kvs[key] = is
	v.tell()
}

// forget notes that a key is not what it was heard to be at the revision.
func (v *view) forget(key string, rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if kvs := v.of(key); kvs[key].rev == rev {
		kvs[key] = kv{rev: rev, gone: true}
	}
}

// under returns what is below the prefix.
func (v *view) under(prefix string) map[string]kv {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string]kv)
	for key, is := range v.of(prefix) {
		if !is.gone && strings.HasPrefix(key, prefix) {
			out[key] = is
		}
	}
	return out
}

// any reports whether there is anything of the kind.
func (v *view) any(prefix string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, is := range v.of(prefix) {
		if !is.gone {
			return true
		}
	}
	return false
}

// get returns one key, gone if it is not there.
func (v *view) get(key string) kv {
	v.mu.Lock()
	defer v.mu.Unlock()
	is, ok := v.of(key)[key]
	if !ok {
		return kv{gone: true}
	}
	return is
}

// follow keeps the view up to date until ctx ends.
func (v *view) follow(ctx context.Context) {
	ctx = clientv3.WithRequireLeader(ctx)
	for try := 0; ctx.Err() == nil; try++ {
		rev, err := v.list(ctx)
		if err != nil {
			v.log.Debug("reading what is live", zap.Error(err))
			pauseFor(ctx, try)
			continue
		}
		if v.watch(ctx, rev) {
			try = -1
		} else {
			pauseFor(ctx, try)
		}
	}
}

// list reads everything.
func (v *view) list(ctx context.Context) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	resp, err := v.etcd.Get(ctx, v.root, clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	rev = resp.Header.Revision
	there := make(map[string]bool, len(resp.Kvs))
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := false
	for _, got := range resp.Kvs {
		key := string(got.Key)
		there[key] = true
		kvs := v.of(key)
		// A revision greater than this answer's own is of before a restore.
		if have, ok := kvs[key]; !ok || have.rev < got.ModRevision || have.rev > rev || have.gone && have.rev == got.ModRevision {
			kvs[key] = v.read(key, string(got.Value), got.ModRevision)
			changed = true
		}
	}
	for _, kvs := range v.kvs {
		for key, is := range kvs {
			if !there[key] && is.rev <= rev {
				delete(kvs, key)
				changed = changed || !is.gone
			}
		}
	}
	select {
	case <-v.synced:
	default:
		close(v.synced)
		changed = true
	}
	if changed {
		v.tell()
	}
	return rev, nil
}

// watch takes in what happens after the revision, and reads everything from time
// to time. It returns, true if that went well, when the watch has to begin anew.
func (v *view) watch(ctx context.Context, rev int64) (well bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := v.etcd.Watch(ctx, v.root, clientv3.WithPrefix(), clientv3.WithRev(rev+1))
	again := time.NewTicker(relist)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return true
		case resp, ok := <-news:
			if !ok || resp.Err() != nil {
				return well
			}
			well = true
			for _, ev := range resp.Events {
				if ev.Type == clientv3.EventTypeDelete {
					v.remove(string(ev.Kv.Key), ev.Kv.ModRevision)
				} else {
					v.put(string(ev.Kv.Key), string(ev.Kv.Value), ev.Kv.ModRevision)
				}
			}
		case <-again.C:
			now, err := v.list(ctx)
			if err != nil || now < rev {
				return false // unreachable, or restored: revisions may be others now
			}
		}
	}
}

// pauseFor waits before the next try.
func pauseFor(ctx context.Context, try int) {
	t := time.NewTimer(min(50*time.Millisecond<<min(max(try, 0), 5), time.Second))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
