package feed_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/feed"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watcher creates watches that end with their contexts. Those on a stream that hangs
// are never created.
type watcher struct {
	clientv3.Watcher
	hangs   []string // names of streams
	streams []string // of all watches, in their order
}

func (w *watcher) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	md, _ := metadata.FromOutgoingContext(ctx)
	stream := append(md.Get("etcdclaims-stream"), "")[0]
	w.streams = append(w.streams, stream)
	news := make(chan clientv3.WatchResponse)
	if slices.Contains(w.hangs, stream) {
		<-ctx.Done()
	}
	context.AfterFunc(ctx, func() { close(news) })
	return news
}

func hasEnded(news clientv3.WatchChan) bool {
	synctest.Wait()
	select {
	case <-news:
		return true
	default:
		return false
	}
}

// A watch that begins in time lasts until it is stopped.
func TestOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		news, stop, begun := feed.Open(t.Context(), new(watcher), time.Second, "k")
		time.Sleep(time.Hour)
		if !begun || hasEnded(news) {
			t.Errorf("begun %v, ended %v", begun, hasEnded(news))
		}
		stop()
		if !hasEnded(news) {
			t.Error("not stopped")
		}
	})
}

// A watch that does not begin in time has ended.
func TestOpenHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t0 := time.Now()
		news, stop, begun := feed.Open(t.Context(), &watcher{hangs: []string{""}}, time.Second, "k")
		defer stop()
		if d := time.Since(t0); begun || d != time.Second || !hasEnded(news) {
			t.Errorf("begun %v after %v, ended %v", begun, d, hasEnded(news))
		}
	})
}

// Each watch that hangs is followed by one on a new stream, and all others stay there.
func TestStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &watcher{hangs: []string{"", "1"}}
		var s feed.Streams
		for _, lives := range []bool{false, false, true, true} {
			news, stop := s.Open(t.Context(), w, time.Second, "k")
			if hasEnded(news) == lives {
				t.Errorf("watches on streams %q: the last one lives: %v", w.streams, !lives)
			}
			stop()
		}
		if want := []string{"", "1", "2", "2"}; !slices.Equal(w.streams, want) {
			t.Errorf("streams %q, want %q", w.streams, want)
		}
	})
}
