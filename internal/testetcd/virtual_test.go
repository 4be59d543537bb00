//go:build unix

package testetcd_test

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

func TestVirtualLeasesExpire(t *testing.T) {
	real := stopwatch()
	synctest.Test(t, func(t *testing.T) {
		v := testetcd.StartVirtual(t)
		t.Logf("started in %v", real())
		c := v.Client(t)
		begin := time.Now()
		for n := 0; time.Since(begin) < 20*time.Minute; n++ {
			lease, err := c.Grant(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			granted := time.Now()
			rev := put(t, c, "/k", "v", clientv3.WithLease(lease.ID))
			ctx, cancel := context.WithCancel(t.Context())
			w := c.Watch(ctx, "/k", clientv3.WithRev(rev+1))
			resp := <-w
			cancel()
			if len(resp.Events) != 1 || resp.Events[0].Type != clientv3.EventTypeDelete {
				t.Fatalf("got %+v, want a delete", resp)
			}
			if age := time.Since(granted); age < 10*time.Second || age > 11*time.Second {
				t.Fatalf("lease of 10s lived for %v", age)
			}
		}
	})
	t.Logf("20 virtual minutes took %v", real())
	if d := real(); d > 20*time.Second { // about 0.2 s, but the race detector may be on, and the machine busy
		t.Errorf("20 virtual minutes took %v", d)
	}
}

func TestVirtualKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testetcd.StartVirtual(t).Client(t)
		lease, err := c.Grant(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		rev := put(t, c, "/k", "v", clientv3.WithLease(lease.ID))
		gone := c.Watch(t.Context(), "/k", clientv3.WithRev(rev+1))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		alive, err := c.KeepAlive(ctx, lease.ID)
		if err != nil {
			t.Fatal(err)
		}
		begin, renewals := time.Now(), 0
		for time.Since(begin) < 10*time.Minute {
			if resp, ok := <-alive; !ok || resp.TTL != 10 {
				t.Fatalf("keepalive got %v, %v", resp, ok)
			}
			renewals++
		}
		if renewals < 100 {
			t.Errorf("only %d renewals of 10s in 10 minutes", renewals)
		}
		wantOpen(t, gone)
		cancel()
		stopped := time.Now()
		if resp := <-gone; len(resp.Events) != 1 || resp.Events[0].Type != clientv3.EventTypeDelete {
			t.Errorf("got %+v, want a delete", resp)
		}
		if d := time.Since(stopped); d > 11*time.Second {
			t.Errorf("expired %v after the last renewal", d)
		}
	})
}

func TestVirtualRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := testetcd.StartVirtual(t)
		c := v.Client(t)
		rev := put(t, c, "/k", "v")
		w := c.Watch(t.Context(), "/k", clientv3.WithRev(rev+1))
		v.Stop(t)
		v.Stop(t) // nothing to do
		if _, err := v.Dial(t.Context()); err == nil {
			t.Error("a stopped server accepts connections")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Put(ctx, "/k", "lost"); err == nil {
			t.Error("a stopped server accepts writes")
		}
		time.Sleep(10 * time.Minute)
		v.Restart(t)
		v.Restart(t) // stops it first
		if value := get(t, v.Client(t), "/k"); value != "v" {
			t.Errorf("value after restart is %q", value)
		}
		put(t, v.Client(t), "/k", "w")
		if resp := <-w; len(resp.Events) != 1 || string(resp.Events[0].Kv.Value) != "w" {
			t.Errorf("watch got %+v", resp)
		}
	})
}

// TestVirtualFaults cuts and intercepts what goes between client and server.
func TestVirtualFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := testetcd.StartVirtual(t)
		var conns []net.Conn
		var calls atomic.Int64
		dial := func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := v.Dial(ctx)
			if err == nil {
				conns = append(conns, conn)
			}
			return conn, err
		}
		slow := func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			calls.Add(1)
			time.Sleep(time.Second)
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		c := v.ClientWith(t, clientv3.Config{DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(dial), grpc.WithChainUnaryInterceptor(slow),
		}})
		begin := time.Now()
		rev := put(t, c, "/k", "v")
		if d := time.Since(begin); d < time.Second || calls.Load() != 1 {
			t.Errorf("%d calls took %v", calls.Load(), d)
		}
		w := c.Watch(t.Context(), "/k", clientv3.WithRev(rev))
		if got := show(collect(t, w, 1), "/"); got[0] != "k=v" {
			t.Errorf("got %v", got)
		}
		for i := range 10 {
			synctest.Wait()
			for _, conn := range conns {
				_ = conn.Close()
			}
			value := strconv.Itoa(i)
			put(t, v.Client(t), "/k", value)
			if got := show(collect(t, w, 1), "/"); got[0] != "k="+value {
				t.Errorf("got %v, want %s", got, value)
			}
		}
	})
}

func TestVirtualOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := testetcd.StartVirtual(t, testetcd.MaxTxnOps(3), testetcd.Quota(5<<19),
			testetcd.Tweak(func(cfg *embed.Config) { cfg.MaxRequestBytes = 3 << 20 }))
		checkOptions(t, v.Client(t))
	})
}

// TestVirtualProgress waits for what takes ten minutes otherwise.
func TestVirtualProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testetcd.StartVirtual(t).Client(t)
		rev := put(t, c, "/other", "v")
		w := c.Watch(t.Context(), "/k", clientv3.WithProgressNotify())
		begin := time.Now()
		if resp := <-w; !resp.IsProgressNotify() || resp.Header.Revision != rev {
			t.Errorf("got %+v, want progress at %d", resp, rev)
		}
		if d := time.Since(begin); d < 10*time.Minute {
			t.Errorf("it came after %v", d)
		}
	})
}

// Watchers that have much to catch up with need several rounds of the server's,
// and some of them are done sooner than others.
func TestVirtualWatchersFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testetcd.StartVirtual(t).Client(t)
		const revisions, watchers = 1500, 600
		first := put(t, c, "/k", "0")
		for i := range revisions {
			put(t, c, "/k", strconv.Itoa(i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all []clientv3.WatchChan
		for i := range watchers {
			from := first + int64(i%2)*revisions // every second has but one event to catch up with
			all = append(all, c.Watch(ctx, "/k", clientv3.WithRev(from)))
		}
		for i, w := range all {
			want := 1 + (1-i%2)*revisions
			got := 0
			for got < want {
				resp := <-w
				if resp.Err() != nil {
					t.Fatal(resp.Err())
				}
				got += len(resp.Events)
			}
			if got != want {
				t.Fatalf("watcher %d: got %d events, want %d", i, got, want)
			}
		}
	})
}

func TestVirtualsAreApart(t *testing.T) {
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := testetcd.StartVirtual(t).Client(t)
				if v := get(t, c, "/k"); v != "" {
					t.Errorf("a new server has %q", v)
				}
				put(t, c, "/k", t.Name())
				time.Sleep(time.Minute)
				if v := get(t, c, "/k"); v != t.Name() {
					t.Errorf("got %q", v)
				}
			})
		})
	}
}

// stopwatch returns a function that tells how much real time has passed since,
// also to those inside a bubble. Real time is what the kernel has.
func stopwatch() func() time.Duration {
	now := func() time.Duration {
		var tv syscall.Timeval
		_ = syscall.Gettimeofday(&tv)
		return time.Duration(tv.Nano())
	}
	begin := now()
	return func() time.Duration { return now() - begin }
}
