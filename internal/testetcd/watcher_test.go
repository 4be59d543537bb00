package testetcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// A kind is one of the two watchers, which must not differ.
type kind struct {
	name string
	raw  bool
}

var kinds = []kind{{name: "clientv3"}, {name: "testetcd", raw: true}}

// client returns a client with this kind of watcher, whose connections can all
// be cut.
func (k kind) client(tb testing.TB, s *testetcd.Server) (*clientv3.Client, *wire) {
	tb.Helper()
	w := &wire{conns: make(map[net.Conn]bool)}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: s.Endpoints(),
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(w.dial),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
				BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond,
			}}),
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	k.set(c)
	return c, w
}

func (k kind) set(c *clientv3.Client) {
	if k.raw {
		c.Watcher = testetcd.NewWatcher(pb.NewWatchClient(c.ActiveConnection()))
	}
}

type wire struct {
	mu      sync.Mutex
	conns   map[net.Conn]bool
	blocked bool
}

func (w *wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.blocked {
		_ = c.Close()
		return nil, errors.New("blocked")
	}
	w.conns[c] = true
	return c, nil
}

// cut breaks all connections. gRPC connects anew at once.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

// block breaks all connections and lets none through until it is told to.
func (w *wire) block(on bool) {
	w.mu.Lock()
	w.blocked = on
	w.mu.Unlock()
	if on {
		w.cut()
	}
}

// show renders events for comparison: key=value, -key for a deletion, and the
// previous value in brackets.
func show(events []*clientv3.Event, prefix string) []string {
	var all []string
	for _, e := range events {
		s := strings.TrimPrefix(string(e.Kv.Key), prefix)
		if e.Type == clientv3.EventTypeDelete {
			s = "-" + s
		} else {
			s += "=" + string(e.Kv.Value)
		}
		if e.PrevKv != nil {
			s += "[" + string(e.PrevKv.Value) + "]"
		}
		all = append(all, s)
	}
	return all
}

// collect reads n events. Responses without events are skipped.
func collect(tb testing.TB, w clientv3.WatchChan, n int) []*clientv3.Event {
	tb.Helper()
	var events []*clientv3.Event
	ctx := deadline(tb)
	for len(events) < n {
		select {
		case resp, ok := <-w:
			if !ok || resp.Err() != nil {
				tb.Fatalf("watch ended after %d of %d events: %v", len(events), n, resp.Err())
			}
			events = append(events, resp.Events...)
		case <-ctx.Done():
			tb.Fatalf("watch is stuck after %d of %d events", len(events), n)
		}
	}
	return events
}

func wantClosed(tb testing.TB, w clientv3.WatchChan) {
	tb.Helper()
	select {
	case resp, ok := <-w:
		if ok {
			tb.Errorf("got %+v, want the channel closed", resp)
		}
	case <-deadline(tb).Done():
		tb.Error("the channel stays open")
	}
}

func TestWatchOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		key  string // below the prefix
		opts func(prefix string, rev int64) []clientv3.OpOption
		want string
	}{
		{name: "key", key: "b", want: "b=1 b=2 -b b=3"},
		{name: "prefix", key: "a", want: "a=1 ab=1 a=2", opts: func(string, int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithPrefix()}
		}},
		{name: "range", key: "a", want: "a=1 ab=1 a=2", opts: func(p string, _ int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithRange(p + "b")}
		}},
		{name: "from key", key: "b", want: "b=1 b=2 -b c=1 b=3", opts: func(string, int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithFromKey()}
		}},
		{name: "previous", key: "b", want: "b=1[0] b=2[1] -b[2] b=3", opts: func(string, int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithPrevKV()}
		}},
		{name: "no puts", key: "b", want: "-b", opts: func(string, int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithFilterPut()}
		}},
		{name: "no deletes", key: "b", want: "b=1 b=2 b=3", opts: func(string, int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithFilterDelete()}
		}},
		{name: "past", key: "b", want: "b=0 b=1 b=2 -b b=3", opts: func(_ string, rev int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithRev(rev)}
		}},
		{name: "future", key: "", want: "b=2 -b c=1 b=3", opts: func(_ string, rev int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithRev(rev + 5), clientv3.WithPrefix()}
		}},
		{name: "fragments", key: "", want: "a=1 ab=1 b=1 a=2 b=2 -b c=1 b=3", opts: func(string, int64) []clientv3.OpOption {
			return []clientv3.OpOption{clientv3.WithFragment(), clientv3.WithPrefix()}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Its own server, so that revisions are counted and a watch from a key
			// on sees nothing else.
			t.Parallel()
			s := testetcd.Start(t, testetcd.NoSync())
			writer := s.Client(t)
			prefix := testetcd.Prefix(t)
			rev := put(t, writer, prefix+"b", "0")
			var opts []clientv3.OpOption
			if tt.opts != nil {
				opts = tt.opts(prefix, rev)
			}
			watches := make(map[string]clientv3.WatchChan)
			for _, k := range kinds {
				c, _ := k.client(t, s)
				watches[k.name] = c.Watch(t.Context(), prefix+tt.key, opts...)
			}
			for _, op := range strings.Fields("a=1 ab=1 b=1 a=2 b=2 -b c=1 b=3") {
				if key, value, isPut := strings.Cut(op, "="); isPut {
					put(t, writer, prefix+key, value)
				} else if _, err := writer.Delete(t.Context(), prefix+key[1:]); err != nil {
					t.Fatal(err)
				}
			}
			for name, w := range watches {
				got := strings.Join(show(collect(t, w, len(strings.Fields(tt.want))), prefix), " ")
				if got != tt.want {
					t.Errorf("%s: got %s, want %s", name, got, tt.want)
				}
			}
		})
	}
}

// each runs a test for both kinds of watchers, on a server for each.
func each(t *testing.T, f func(t *testing.T, k kind, s *testetcd.Server)) {
	t.Helper()
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f(t, k, testetcd.Start(t, testetcd.NoSync()))
		})
	}
}

func TestWatchNotifications(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		c, w := k.client(t, s)
		rev := put(t, c, "/k", "0")
		created := c.Watch(t.Context(), "/k", clientv3.WithCreatedNotify())
		resp := <-created
		if !resp.Created || resp.Header.Revision != rev || resp.Err() != nil {
			t.Errorf("got %+v, want a notification of the watch created at %d", resp, rev)
		}
		if err := c.RequestProgress(t.Context()); err != nil {
			t.Errorf("request progress: %v", err)
		}
		resp = <-created
		if !resp.IsProgressNotify() || resp.Header.Revision != rev {
			t.Errorf("got %+v, want a notification of progress at %d", resp, rev)
		}
		// One that is created again to resume has been notified of already.
		w.cut()
		put(t, s.Client(t), "/k", "1")
		if resp := <-created; resp.Created || len(resp.Events) != 1 {
			t.Errorf("got %+v, want an event", resp)
		}
	})
}

func TestWatchFragments(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		// A watch into the past gets all of it in one response, which is larger
		// than what the server sends at once.
		c, _ := k.client(t, s)
		big := strings.Repeat("x", 600<<10)
		rev := put(t, c, "/k/0", big)
		for i := 1; i < 10; i++ {
			put(t, c, "/k/"+strconv.Itoa(i), big)
		}
		w := c.Watch(t.Context(), "/k/", clientv3.WithPrefix(), clientv3.WithFragment(), clientv3.WithRev(rev))
		for i, e := range collect(t, w, 10) {
			if want := "/k/" + strconv.Itoa(i); string(e.Kv.Key) != want || len(e.Kv.Value) != len(big) {
				t.Errorf("got %s, want %s", e.Kv.Key, want)
			}
		}
	})
}

func TestWatchCompacted(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		c, _ := k.client(t, s)
		put(t, c, "/k", "0")
		rev := put(t, c, "/k", "1")
		if _, err := c.Compact(t.Context(), rev); err != nil {
			t.Fatal(err)
		}
		w := c.Watch(t.Context(), "/k", clientv3.WithRev(rev-1))
		resp := <-w
		if !resp.Canceled || resp.CompactRevision != rev || !errors.Is(resp.Err(), rpctypes.ErrCompacted) {
			t.Errorf("got %+v with error %v, want it compacted at %d", resp, resp.Err(), rev)
		}
		wantClosed(t, w)
		if e := collect(t, c.Watch(t.Context(), "/k", clientv3.WithRev(rev)), 1); e[0].Kv.ModRevision != rev {
			t.Errorf("got %v at the compacted revision", e)
		}
	})
}

func TestWatchRefused(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		c, _ := k.client(t, s)
		ctx := deadline(t)
		w := c.Watch(ctx, "/k", clientv3.WithRev(-1))
		if resp := <-w; !resp.Canceled || !errors.Is(resp.Err(), rpctypes.ErrCompacted) {
			t.Errorf("a negative revision got %+v", resp)
		}
		wantClosed(t, w)

		for _, user := range []string{"root", "guest"} {
			if _, err := c.UserAdd(ctx, user, "secret"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.UserGrantRole(ctx, "root", "root"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.AuthEnable(ctx); err != nil {
			t.Fatal(err)
		}
		guest, err := clientv3.New(clientv3.Config{
			Endpoints: s.Endpoints(), Username: "guest", Password: "secret",
			DialTimeout: time.Minute, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = guest.Close() }()
		k.set(guest)
		w = guest.Watch(ctx, "/k")
		if resp := <-w; !resp.Canceled || !strings.Contains(fmt.Sprint(resp.Err()), "permission denied") {
			t.Errorf("a guest got %+v with error %v", resp, resp.Err())
		}
		wantClosed(t, w)
	})
}

func TestWatchCanceled(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		c, _ := k.client(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		w := c.Watch(ctx, "/k")
		cancel()
		wantClosed(t, w)

		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wantClosed(t, c.Watch(ctx, "/k"))

		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		wantClosed(t, c.Watch(canceled, "/k"))

		// Those of others go on.
		other := c.Watch(t.Context(), "/k")
		put(t, c, "/k", "v")
		collect(t, other, 1)

		s.Stop(t)
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wantClosed(t, c.Watch(ctx, "/k")) // it could not be created
		wantOpen(t, other)
	})
}

func wantOpen(tb testing.TB, w clientv3.WatchChan) {
	tb.Helper()
	select {
	case resp, ok := <-w:
		tb.Errorf("got %+v, %v, want nothing", resp, ok)
	default:
	}
}

func TestWatcherClose(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		c, _ := k.client(t, s)
		watches := []clientv3.WatchChan{c.Watch(t.Context(), "/a"), c.Watch(t.Context(), "/b")}
		if err := c.Watcher.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, w := range watches {
			for range w { // clientv3 may say why
			}
		}
		wantClosed(t, c.Watch(t.Context(), "/k"))
		if err := c.RequestProgress(t.Context()); err == nil {
			t.Error("a closed watcher takes requests for progress")
		}
		if err := c.Watcher.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

// TestWatchResume breaks connections all the time. Every event must come once.
func TestWatchResume(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		c, wire := k.client(t, s)
		writer := s.Client(t)
		rev := put(t, writer, "/k/first", "")
		const n = 300
		watches := []clientv3.WatchChan{
			c.Watch(t.Context(), "/k/", clientv3.WithPrefix(), clientv3.WithRev(rev+1)),
			c.Watch(t.Context(), "/k/", clientv3.WithPrefix(), clientv3.WithRev(rev+1), clientv3.WithFragment()),
			c.Watch(t.Context(), "/k/", clientv3.WithPrefix(), clientv3.WithRev(rev+1), clientv3.WithFilterDelete()),
		}
		for i := range n {
			put(t, writer, fmt.Sprintf("/k/%d", i), "")
			if i%10 == 0 {
				wire.cut()
			}
			if i%100 == 50 {
				s.Restart(t)
			}
		}
		for i, w := range watches {
			events := collect(t, w, n)
			for j, e := range events {
				if want := fmt.Sprintf("/k/%d", j); string(e.Kv.Key) != want {
					t.Fatalf("watch %d: event %d is %s, want %s", i, j, e.Kv.Key, want)
				}
			}
			if len(events) != n {
				t.Errorf("watch %d: %d events, want %d", i, len(events), n)
			}
			wantOpen(t, w)
		}
	})
}

// TestWatchResumeFromNow is about watches which were not told where to start.
// Here clientv3 does worse: it repeats what came last before it was created.
func TestWatchResumeFromNow(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts a server")
	}
	t.Parallel()
	s := testetcd.Start(t, testetcd.NoSync())
	writer := s.Client(t)
	put(t, writer, "/k", "before")
	c, wire := kind{raw: true}.client(t, s)
	for i := range 6 {
		w := c.Watch(t.Context(), "/k")
		wire.cut()
		if i%2 == 0 {
			s.Restart(t)
		}
		value := strconv.Itoa(i)
		put(t, writer, "/k", value)
		if got := show(collect(t, w, 1), "/"); !slices.Equal(got, []string{"k=" + value}) {
			t.Fatalf("got %v, want %s", got, value)
		}
	}
}

func TestWatchResumeCompacted(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		c, wire := k.client(t, s)
		rev := put(t, c, "/k", "0")
		w := c.Watch(t.Context(), "/k", clientv3.WithRev(rev))
		collect(t, w, 1)
		// While it is away, what it has to see next disappears.
		wire.block(true)
		writer := s.Client(t)
		put(t, writer, "/k", "1")
		last := put(t, writer, "/k", "2")
		if _, err := writer.Compact(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		wire.block(false)
		resp := <-w
		if !resp.Canceled || resp.CompactRevision != last || !errors.Is(resp.Err(), rpctypes.ErrCompacted) {
			t.Errorf("got %+v with error %v, want it compacted at %d", resp, resp.Err(), last)
		}
		wantClosed(t, w)
	})
}

// TestWatchSlow leaves one watch unread while another one goes on.
func TestWatchSlow(t *testing.T) {
	each(t, func(t *testing.T, k kind, s *testetcd.Server) {
		c, _ := k.client(t, s)
		rev := put(t, c, "/first", "")
		slow := c.Watch(t.Context(), "/k/", clientv3.WithPrefix(), clientv3.WithRev(rev+1))
		quick := c.Watch(t.Context(), "/k/", clientv3.WithPrefix(), clientv3.WithRev(rev+1))
		const n = 200
		big := strings.Repeat("x", 10<<10) // much more altogether than a stream holds
		for i := range n {
			put(t, c, fmt.Sprintf("/k/%d", i), big)
			collect(t, quick, 1)
		}
		for i, e := range collect(t, slow, n) {
			if want := fmt.Sprintf("/k/%d", i); string(e.Kv.Key) != want {
				t.Fatalf("event %d is %s, want %s", i, e.Kv.Key, want)
			}
		}
	})
}
