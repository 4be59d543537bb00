package group_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/fencing"
)

// A router's view is older than the group, which was made anew with another number of partitions.
func TestViewOfARemadeGroupRoutesNothing(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		a := w.join(config("a", 8))
		v := w.view()
		w.within(2*sec, "a has all", func() bool { return counts(v)["a"] == 8 })
		a.leave()
		admin := claimtest.NewClient(w.T, w.server, etcdclaims.Config{})
		w.ok(group.Remove(w.Context(), admin, "g"))
		waiting := make(chan error, 1)
		go func() {
			waiting <- v.Call(context.Background(), 3, func(context.Context, group.Route) error { return nil })
		}()
		_, err := v.Route(3)
		w.wantErr(err, group.ErrNoOwner)

		b := w.join(config("b", 16))
		w.within(sec, "the view knows", func() bool { _, err := v.Route(3); return errors.Is(err, group.ErrPartitions) })
		time.Sleep(30 * sec)
		for partition := range 16 {
			_, err := v.Route(partition)
			w.wantErr(err, group.ErrPartitions)
		}
		w.wantErr(<-waiting, group.ErrPartitions)
		w.wantErr(v.Call(w.Context(), 3, func(context.Context, group.Route) error { return fencing.ErrStale }), group.ErrPartitions)
		if n := counts(v); n[""] != 8 {
			w.Errorf("owners of the former partitions: %v", n)
		}
		if n := w.view().Partitions(); n != 16 {
			w.Errorf("a new view has %d partitions", n)
		}

		// As it was made before, it is the same group.
		b.leave()
		w.ok(group.Remove(w.Context(), admin, "g"))
		w.join(config("c", 8))
		w.within(2*sec, "c has all", func() bool { return counts(v)["c"] == 8 })
		_, err = v.Route(3)
		w.ok(err)
	})
}

// An operator deletes the number of partitions by hand, and a process with another number starts.
func TestNumberOfPartitionDeletedByHand(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		a := w.join(config("a", 8))
		v := w.view()
		w.within(2*sec, "a has all", func() bool { return counts(v)["a"] == 8 })
		before := v.Assignment().Owners
		key := w.root() + "spec"
		was := w.value(key)
		a.host.Inject(claimtest.Fault{Times: -1, DelayRequest: 2 * sec}) // b comes before a puts it back
		w.server.Delete(w.T, key)
		w.wantErr(w.tryJoin(config("b", 16)).err, group.ErrPartitions)
		a.host.RemoveFaults()
		w.join(config("c", 8))
		if got := w.value(key); got != was {
			w.Errorf("the number of partitions is %q, was %q", got, was)
		}
		w.ok(a.Err())
		for partition, o := range v.Assignment().Owners {
			if o.Token != before[partition].Token && o.Member == "a" {
				w.Errorf("partition %d has another term", partition)
			}
		}
	})
}

// What the number of partitions was replaced with by hand ends members that have another.
func TestNumberOfPartitionChangedByHand(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		a := w.join(config("a", 8))
		key := w.root() + "spec"
		w.put(key, strings.Replace(w.value(key), `"partitions":8`, `"partitions":16`, 1))
		w.within(10*sec, "a has left", func() bool {
			select {
			case <-a.Done():
				return true
			default:
				return false
			}
		})
		w.wantErr(a.Err(), group.ErrPartitions)
		w.join(config("b", 16))
	})
}
