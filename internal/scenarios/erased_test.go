package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	sec = time.Second
	// effects is where effects are, each of which must come once.
	effects = "/effects/"
)

// erasable is a kind of keys that an operator can delete by hand.
type erasable struct {
	key  string // the documents' name of the kind, where the kind has one
	name string // matches the names below the prefix
	// within is how long after the deletion everything has gone on at the latest.
	within time.Duration
	// mend is what the operator has to do. It is done halfway to within.
	mend func(w *erasure)
	// rare kinds are not deleted: the use seldom needs them.
	rare bool
	// refused is the error that callers get until then.
	refused error
}

// feature is what is in use while keys are deleted. use starts it, and notes by did what
// has to go on.
type feature struct {
	doc, from, to string // the document with the table of keys, and the lines around the table
	use           func(w *erasure)
	kinds         []erasable
}

// erasure is an etcd in virtual time, of which a key is deleted.
type erasure struct {
	*testing.T
	server *claimtest.Server
	raw    *clientv3.Client
	ctx    context.Context // ends with the use
	all    sync.WaitGroup

	mu      sync.Mutex
	dids    map[string]int
	errs    map[string]int
	spans   map[string][]*span
	settled func() error // what must become nil before the use ends
}

// span is the revisions at which etcd has confirmed a claim as the owner.
type span struct {
	id       string
	mode     string
	from, to int64
}

func (w *erasure) start(f func()) { w.all.Go(f) }

func (w *erasure) did(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dids[what]++
}

// failed counts errors of calls that are tried again.
func (w *erasure) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.errs[err.Error()]++
		if errors.Is(err, etcdclaims.ErrRewound) {
			w.errs[etcdclaims.ErrRewound.Error()]++
		}
	}
}

func (w *erasure) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// until waits, and reports whether the use goes on.
func (w *erasure) until(d time.Duration) bool {
	select {
	case <-w.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (w *erasure) client(cfg etcdclaims.Config) (*etcdclaims.Client, *claimtest.Host) {
	w.Helper()
	if cfg.TTL == 0 {
		cfg.TTL = 6 * sec
	}
	h := w.server.Host(w.T)
	return claimtest.NewClient(w.T, h, cfg), h
}

// owning writes under the claim again and again, for some time or until that is refused.
// etcd confirms the owner with each write. key is what excludes, and mode how.
func (w *erasure) owning(cl *etcdclaims.Claim, key, mode string, d time.Duration) (owned bool) {
	s := &span{id: cl.ID(), mode: mode}
	for end := time.Now().Add(d); time.Now().Before(end) && w.ctx.Err() == nil; time.Sleep(d / 5) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*sec)
		resp, err := cl.Txn(ctx).Then(clientv3.OpPut("/data/"+key, cl.ID())).Commit()
		cancel()
		if err != nil {
			if errors.Is(err, etcdclaims.ErrUnknown) {
				continue
			}
			break
		}
		w.mu.Lock()
		if s.to = resp.Header.Revision; s.from == 0 {
			s.from = s.to
			w.spans[key] = append(w.spans[key], s)
		}
		w.mu.Unlock()
	}
	return s.from > 0
}

// excludes reports whether claims of the modes must not own a key at the same revision.
// Slots are compared by their own keys.
func excludes(a, b string) bool {
	return a != b || a != "shared" && a != "slots"
}

// oneOwner checks that no two claims that exclude each other owned a key at one revision.
func (w *erasure) oneOwner() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, spans := range w.spans {
		slices.SortFunc(spans, func(a, b *span) int { return int(a.from - b.from) })
		for i, a := range spans {
			for _, b := range spans[i+1:] {
				if b.from <= a.to && excludes(a.mode, b.mode) {
					w.Errorf("%s: %s (%s) owned it from %d to %d, and %s (%s) from %d to %d", key, a.id, a.mode, a.from, a.to, b.id, b.mode, b.from, b.to)
				}
			}
		}
	}
}

// once checks that no key below the prefix was written twice: each is an effect.
func (w *erasure) once(prefix string) {
	w.Helper()
	resp, err := w.raw.Get(context.Background(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	w.ok(err)
	for _, kv := range resp.Kvs {
		if kv.Version > 1 {
			w.Errorf("%s: %d effects", kv.Key, kv.Version)
		}
	}
}

// erase deletes the first key of the kind that is there, or appears.
func (w *erasure) erase(k erasable) (name string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*sec)
	defer cancel()
	matches := regexp.MustCompile("^" + etcdclaims.DefaultPrefix + "(?:" + k.name + ")$")
	resp, err := w.raw.Get(ctx, etcdclaims.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	w.ok(err)
	for _, kv := range resp.Kvs {
		if matches.Match(kv.Key) {
			w.server.Delete(w.T, string(kv.Key))
			return string(kv.Key)
		}
	}
	for resp := range w.raw.Watch(ctx, etcdclaims.DefaultPrefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1)) {
		for _, ev := range resp.Events {
			if ev.IsCreate() && matches.Match(ev.Kv.Key) {
				w.server.Delete(w.T, string(ev.Kv.Key))
				return string(ev.Kv.Key)
			}
		}
	}
	w.Fatalf("no key %s in 60 s", k.name)
	return ""
}

func (w *erasure) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := make(map[string]int)
	for what, n := range w.dids {
		now[what] = n
	}
	return now
}

// erasing uses the feature, deletes a key of the kind, and checks that all goes on.
func erasing(t *testing.T, f *feature, k erasable) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &erasure{T: t, server: claimtest.Start(t), dids: make(map[string]int), errs: make(map[string]int), spans: make(map[string][]*span)}
		w.raw = w.server.Admin()
		var stop context.CancelFunc
		w.ctx, stop = context.WithCancel(t.Context())
		defer func() { stop(); w.all.Wait() }()
		var seen sync.Map
		news := w.raw.Watch(w.ctx, etcdclaims.DefaultPrefix, clientv3.WithPrefix())
		w.start(func() {
			for resp := range news {
				for _, ev := range resp.Events {
					seen.Store(strings.TrimPrefix(string(ev.Kv.Key), etcdclaims.DefaultPrefix), true)
				}
			}
		})
		f.use(w)
		time.Sleep(9 * sec) // amid the terms of claims
		name := w.erase(k)
		time.Sleep(k.within / 2)
		if k.mend != nil {
			k.mend(w)
		}
		time.Sleep(k.within - k.within/2)
		const idle = 15 * sec
		before := w.counts()
		time.Sleep(idle)
		after := w.counts()
		for what, n := range after {
			if n == before[what] {
				t.Errorf("%v after %s was deleted: no %s for %v", k.within, name, what, idle)
			}
		}
		if w.settled != nil {
			err := w.settled()
			for range 60 {
				if err == nil {
					break
				}
				time.Sleep(sec)
				err = w.settled()
			}
			if err != nil {
				t.Errorf("after %s was deleted: %v", name, err)
			}
		}
		stop()
		w.all.Wait()
		w.oneOwner()
		w.once(effects)
		if k.refused != nil && w.errs[k.refused.Error()] == 0 {
			t.Errorf("no call returned %v, but %v", k.refused, w.errs)
		}
		if t.Failed() {
			t.Logf("%v", after)
			for err, n := range w.errs {
				t.Logf("%d times: %s", n, err)
			}
		}
		seen.Range(func(name, _ any) bool {
			if !slices.ContainsFunc(f.kinds, func(k erasable) bool { return regexp.MustCompile("^(?:" + k.name + ")$").MatchString(name.(string)) }) {
				t.Errorf("no kind of key matches %s", name)
			}
			return true
		})
	})
}

// documented returns the kinds of keys that the feature's document lists.
func (f *feature) documented(t *testing.T) (keys []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + f.doc)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), f.from)
	table, _, ok2 := strings.Cut(rest, f.to)
	if !ok || !ok2 {
		t.Fatalf("%s: no table between %q and %q", f.doc, f.from, f.to)
	}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && strings.Contains(cells[1], "`") && !strings.Contains(cells[1], "…") {
			keys = append(keys, strings.TrimSpace(cells[1]))
		}
	}
	return keys
}

// Every kind of key in etcd is deleted by hand while it is in use: no two owners, no effect
// twice, and all goes on within the documented time. The kinds are those of the documents, and
// no other keys exist.
func TestErased(t *testing.T) {
	t.Parallel()
	for _, f := range []*feature{erasedClaims, erasedQueue, erasedSchedules, erasedGroups} {
		listed := f.documented(t)
		if len(listed) < 5 {
			t.Errorf("%s lists %d kinds of keys", f.doc, len(listed))
		}
		for _, key := range listed {
			if !slices.ContainsFunc(f.kinds, func(k erasable) bool { return k.key == key }) {
				t.Errorf("%s: %s is never deleted", f.doc, key)
			}
		}
		for _, k := range f.kinds {
			if k.key != "" && !slices.Contains(listed, k.key) {
				t.Errorf("%s does not list %s", f.doc, k.key)
			}
			if k.rare {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", f.doc, strings.NewReplacer("/", "-", hex, "HEX", uuid, "ID").Replace(k.name)), func(t *testing.T) {
				t.Parallel()
				testetcd.Third(t)
				erasing(t, f, k)
			})
		}
	}
}
