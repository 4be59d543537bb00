package watch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/retry"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const every = 5 * time.Second

// etcd has the claims of a fake etcd, whose watch can be deaf and whose reads can fail.
type etcd struct {
	mu   sync.Mutex
	rev  int64
	own  map[string]int64 // ModRevision by key
	deaf bool
	fail error
	news chan clientv3.WatchResponse // of the last watch
}

func (e *etcd) put(keys ...string) {
	for _, key := range keys {
		e.change(key, clientv3.EventTypePut)
	}
}

func (e *etcd) remove(key string) { e.change(key, clientv3.EventTypeDelete) }

func (e *etcd) change(key string, kind mvccpb.Event_EventType) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rev++
	if e.own[key] = e.rev; kind == clientv3.EventTypeDelete {
		delete(e.own, key)
	}
	if e.news != nil && !e.deaf {
		e.news <- clientv3.WatchResponse{Events: []*clientv3.Event{{Type: kind, Kv: &mvccpb.KeyValue{Key: []byte("own/" + key), ModRevision: e.rev}}}}
	}
}

func (e *etcd) set(deaf bool, fail error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf, e.fail = deaf, fail
}

// kvs returns the claims that were put since a revision.
func (e *etcd) kvs(since int64) (all []*mvccpb.KeyValue) {
	for key, rev := range e.own {
		if rev >= since {
			all = append(all, &mvccpb.KeyValue{Key: []byte("own/" + key), ModRevision: rev})
		}
	}
	return all
}

func (e *etcd) pages(context.Context) iter.Seq2[retry.Page, error] {
	return func(yield func(retry.Page, error) bool) {
		e.mu.Lock()
		p, err := retry.Page{Kvs: e.kvs(0), Rev: e.rev}, e.fail
		e.mu.Unlock()
		yield(p, err)
	}
}

func (e *etcd) read(_ context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ranges := []*etcdserverpb.RangeResponse{{}, {Count: int64(len(e.own))}, {Kvs: e.kvs(ops[2].MinModRev())}}
	resp := &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: e.rev}}
	for _, r := range ranges {
		resp.Responses = append(resp.Responses, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: r}})
	}
	return resp, nil
}

func (e *etcd) begin(ctx context.Context, _ string, _ ...clientv3.OpOption) (clientv3.WatchChan, context.CancelFunc, bool) {
	ctx, stop := context.WithCancel(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	news := make(chan clientv3.WatchResponse, 100)
	e.news = news
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.news == news {
			e.news = nil
		}
		close(news)
	})
	return news, stop, true
}

var errPassing = errors.New("passing")

// follow runs test with a watch of e in virtual time. heard returns what the watch has yielded since
// it was last called.
func follow(t *testing.T, e *etcd, test func(t *testing.T, heard func() string), want error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		w := New(Config[string]{
			Own: "own/", Epoch: "epoch", Log: zap.NewNop(), Every: every,
			Claimed: func(key string, kv *mvccpb.KeyValue) (string, int64) {
				return fmt.Sprint(key, "=", kv.ModRevision), kv.ModRevision
			},
			Freed: func(key string, fence int64) string { return fmt.Sprint(key, "-", fence) },
			Pages: e.pages, Read: e.read, Begin: e.begin,
			Learn:    func([]*mvccpb.KeyValue, int64) error { return nil },
			Advanced: func() <-chan struct{} { return nil },
			MayPass:  func(err error) bool { return errors.Is(err, errPassing) },
		})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- w.Run(ctx, func(ev Event[string]) bool {
				mu.Lock()
				defer mu.Unlock()
				what := ev.Info
				switch ev.Kind {
				case Synced:
					what = "synced"
				case Resynced:
					what = "resynced"
				case Claimed, Freed:
				}
				events = append(events, what)
				return what != "last=3"
			})
		}()
		test(t, func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer func() { events = nil }()
			return strings.Join(events, " ")
		})
		cancel()
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("ended with %v, want %v", err, want)
		}
		synctest.Wait()
	})
}

func TestWatchYieldsChanges(t *testing.T) {
	t.Parallel()
	e := &etcd{own: map[string]int64{"a": 1}, rev: 1}
	follow(t, e, func(t *testing.T, heard func() string) {
		if got := heard(); got != "a=1 synced" {
			t.Error(got)
		}
		e.put("b", "a")
		e.remove("b")
		if got := heard(); got != "b=2 a=3 b-2" {
			t.Error(got)
		}
		time.Sleep(10 * every) // compared with etcd meanwhile
		if got := heard(); got != "" {
			t.Error(got)
		}
	}, nil)
}

// Lost events are made up for within the time between two comparisons and the grace.
func TestDeafWatch(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*etcd){
		"claimed": func(e *etcd) { e.put("b") },
		"freed":   func(e *etcd) { e.remove("a") },
		"another": func(e *etcd) { e.remove("a"); e.put("b") },
		"anew":    func(e *etcd) { e.remove("a"); e.put("a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &etcd{own: map[string]int64{"a": 1}, rev: 1}
			follow(t, e, func(t *testing.T, heard func() string) {
				heard()
				e.set(true, nil)
				change(e)
				if got := heard(); got != "" {
					t.Fatal(got)
				}
				time.Sleep(every + 2*auditGrace)
				want := map[string]string{"claimed": "resynced b=2", "freed": "resynced a-1", "another": "resynced b=3 a-1", "anew": "resynced a=3"}[name]
				if got := heard(); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}, nil)
		})
	}
}

// Reads that fail for a reason that may pass are tried again. Another error ends the watch.
func TestReadsFail(t *testing.T) {
	t.Parallel()
	e := &etcd{own: map[string]int64{"a": 1}, rev: 1, fail: errPassing}
	refused := errors.New("refused")
	follow(t, e, func(t *testing.T, heard func() string) {
		time.Sleep(time.Minute)
		if got := heard(); got != "" {
			t.Error(got)
		}
		e.set(true, nil)
		time.Sleep(time.Minute)
		if got := heard(); got != "a=1 synced" {
			t.Error(got)
		}
		e.put("b")
		e.set(true, refused)
		time.Sleep(time.Minute)
		if got := heard(); got != "" {
			t.Error(got)
		}
	}, refused)
}

// A caller that breaks off ends the watch, which yields nothing more.
func TestBreakOff(t *testing.T) {
	t.Parallel()
	e := &etcd{own: map[string]int64{"a": 1}, rev: 1}
	follow(t, e, func(t *testing.T, heard func() string) {
		e.put("b", "last", "c")
		time.Sleep(time.Minute)
		if got := heard(); !strings.HasSuffix(got, "last=3") {
			t.Error(got)
		}
	}, nil)
}
