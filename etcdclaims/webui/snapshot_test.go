package webui

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
)

func withoutEtcd(t *testing.T) *etcdclaims.Client {
	t.Helper()
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return claims
}

func newHandler(t *testing.T) *Handler {
	t.Helper()
	h, err := New(withoutEtcd(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// hangs is a reading that etcd does not answer.
func hangs(ctx context.Context) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestReadingsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t)
		defer h.Close()
		s := &h.snapshots
		for i := range 1000 {
			if _, fresh := s.get(t.Context(), patience{until: time.Now()}, fmt.Sprint(i), time.Second, hangs); !errors.Is(fresh.Err, errSlow) {
				t.Fatalf("reading %d: %v", i, fresh.Err)
			}
		}
		s.mu.Lock()
		pending := s.pending
		s.mu.Unlock()
		if pending != mostPending {
			t.Errorf("%d readings are pending, want %d", pending, mostPending)
		}
		time.Sleep(2*readTimeout + time.Second)
		synctest.Wait()
		if s.pending != 0 || len(s.slots) != 0 {
			t.Errorf("%d readings are pending, %d have a slot", s.pending, len(s.slots))
		}
		wait := patience{until: time.Now().Add(time.Second)}
		value, fresh := s.get(t.Context(), wait, "quick", time.Second, func(context.Context) (any, error) { return 1, nil })
		if value != 1 || fresh.Err != nil {
			t.Errorf("after that: %v, %v", value, fresh.Err)
		}
	})
}

// A reading that always times out is no load on etcd.
func TestSlowReadingsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t)
		defer h.Close()
		n := 0
		for range 600 {
			h.snapshots.get(t.Context(), patience{until: time.Now()}, "slow", time.Second, func(ctx context.Context) (any, error) {
				n++
				return hangs(ctx)
			})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n < 5 || n > 15 {
			t.Errorf("%d readings in ten minutes, each takes %v", n, readTimeout)
		}
	})
}

// The status and the members are read again on time after a slow answer, and while all other readings hang.
func TestUrgentReadsAreOnTime(t *testing.T) {
	for topic, slow := range map[string]time.Duration{statusTopic: statusTimeout, membersTopic: memberTimeout} {
		t.Run(topic, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHandler(t)
				defer h.Close()
				s := &h.snapshots
				for i := range 2 * mostPending {
					s.get(t.Context(), patience{until: time.Now()}, fmt.Sprint(i), time.Second, hangs)
				}
				synctest.Wait()
				slow -= 100 * time.Millisecond
				read := func(context.Context) (any, error) {
					time.Sleep(slow)
					return time.Now(), nil
				}
				for i := range 10 {
					until := time.Now().Add(slow + statusEvery)
					value, fresh := s.get(t.Context(), patience{until: until, again: until}, topic, statusEvery, read)
					if value != any(time.Now()) || fresh.Err != nil {
						t.Fatalf("read %d at %v: %v, %v", i, time.Now(), value, fresh.Err)
					}
					time.Sleep(statusEvery)
				}
			})
		})
	}
}

// What a tab shows is not dropped, however many other pages are asked for.
func TestShownSnapshotsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t)
		defer h.Close()
		h.tabs.add(shows{topics: map[string]bool{"shown": true}})
		read := func(context.Context) (any, error) { return 1, nil }
		h.snapshots.get(t.Context(), patience{until: time.Now().Add(time.Second)}, "shown", time.Second, read)
		for i := range 2 * mostSnapshots {
			h.snapshots.get(t.Context(), patience{until: time.Now().Add(time.Second)}, fmt.Sprint(i), time.Second, read)
		}
		if n := len(h.snapshots.byName); h.snapshots.byName["shown"] == nil || n > mostSnapshots {
			t.Errorf("it was dropped, or there are too many: %d", n)
		}
	})
}

func TestQueuesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t)
		defer h.Close()
		defer clear(h.queues.byName) // there is nothing to close
		for i := range 2 * mostQueues {
			if _, surplus := h.queues.keep(fmt.Sprint(i), new(queue.Queue)); surplus != nil {
				t.Fatalf("queue %d takes the place of another", i)
			}
			time.Sleep(time.Second)
		}
		second := h.queues.byName["1"].Queue
		h.queues.known("0")
		opened := new(queue.Queue)
		if used, surplus := h.queues.keep("new", opened); used != opened || surplus != second {
			t.Error("the queue that was not used for longest is kept")
		}
		if len(h.queues.byName) != 2*mostQueues {
			t.Errorf("%d queues are open", len(h.queues.byName))
		}
	})
}

// A watch that begins again does not empty the page.
func TestBoardOutlivesWatch(t *testing.T) {
	h := newHandler(t)
	defer h.Close()
	b := &h.board
	event := func(kind etcdclaims.EventKind, key string) {
		b.apply(etcdclaims.Event{Kind: kind, Info: etcdclaims.Info{Key: key, Held: true, Lease: 1}}, b.run)
	}
	event(etcdclaims.Claimed, "a")
	event(etcdclaims.Claimed, "b")
	event(etcdclaims.Synced, "")
	b.renew()
	event(etcdclaims.Claimed, "b")
	event(etcdclaims.Claimed, "c")
	if got := fmt.Sprint(b.allKeys()); got != "[a b c]" {
		t.Errorf("before the new watch has synced: %v", got)
	}
	event(etcdclaims.Synced, "")
	if got := fmt.Sprint(b.allKeys()); got != "[b c]" || b.summary().Held != 2 || b.seen != nil {
		t.Errorf("after it: %v, %+v", got, b.summary())
	}
}
