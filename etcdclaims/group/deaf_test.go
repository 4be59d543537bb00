package group_test

import (
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/option"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// kept is each way in which a watch can keep something back.
var kept = map[string]claimtest.Fault{
	"every event":  {Edit: func(reply any) { reply.(*pb.WatchResponse).Events = nil }},
	"create reply": {LoseReply: true},
	"late events":  {Edit: func(any) { time.Sleep(2 * time.Minute) }}, // when the watches are begun anew
	"stream":       {DelayRequest: time.Hour},
}

// A view whose watches keep something back hears of members within 16 s: it reads the list
// each 10 s, and gives up after 5 s on a watch that does not begin. A member hears of
// partitions within a renewal interval.
func TestDeafView(t *testing.T) {
	t.Parallel()
	for how, fault := range kept {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(w *world) {
				const partitions = 6
				host := w.server.Host(w.T)
				fault.On, fault.Times = claimtest.Watch, -1
				deaf := host.Inject(fault)
				w.join(config("a", partitions))
				v := w.viewFrom(host)
				has := func(name string) func() bool {
					return func() bool {
						return slices.ContainsFunc(v.Assignment().Members, func(m group.MemberInfo) bool { return m.Name == name })
					}
				}
				for _, name := range []string{"b", "c"} {
					p := w.join(config(name, partitions))
					w.within(16*sec, name+" is seen", has(name))
					w.within(ttl, name+" is seen as an owner", func() bool { return counts(v)[name] > 0 })
					p.leave()
					w.within(16*sec, name+" is not seen", func() bool { return !has(name)() })
				}
				if deaf.Hits() == 0 {
					w.Error("no watch was deaf")
				}
				deaf.Remove()
				host.Break() // what was lost stays lost on an open stream
				time.Sleep(16 * sec)
				w.join(config("d", partitions))
				w.within(sec, "d is seen", has("d"))
			})
		})
	}
}

// A member that hangs has the stream of a view's watches. The view gives up on it after
// 5 s, and hears at once by a new stream.
func TestViewLeavesHungStream(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		w.join(config("a", 6))
		v := w.viewFrom(deafness.HungStream(w.server.Host(w.T)))
		time.Sleep(6 * sec)
		for _, name := range []string{"b", "c", "d"} {
			w.join(config(name, 6))
			w.within(100*time.Millisecond, name+" is seen", func() bool {
				return slices.ContainsFunc(v.Assignment().Members, func(m group.MemberInfo) bool { return m.Name == name })
			})
			time.Sleep(3 * sec)
		}
	})
}

// A member that waits looks whether it is in line when it has waited for a lease and a
// half. One that owns the partition by then, and does not know it yet, stays a member.
func TestOwnerThatDoesNotKnowYet(t *testing.T) {
	t.Parallel()
	for wait := 12 * sec; wait < 15*sec; wait += sec / 10 {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			testetcd.Sample(t)
			virtually(t, func(w *world) {
				other := claimtest.NewClient(w.T, w.server, etcdclaims.Config{TTL: ttl})
				held, err := other.TryAcquire(w.Context(), "group/g/partition/00000", option.OwnKey{})
				w.ok(err)
				host := w.server.Host(w.T)
				host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, DelayReply: sec})
				host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, DelayReply: sec})
				b := w.joinFrom(host, claimtest.NewClient(w.T, host, etcdclaims.Config{TTL: ttl, Owner: "b"}), config("b", 1))
				w.ok(b.err)
				v := w.view()
				joined := v.Assignment().Members[0].Since
				time.Sleep(wait)
				w.ok(held.Release(w.Context()))
				w.within(5*sec, "b serves", func() bool {
					o := v.Assignment().Owners[0]
					return o.Member == "b" && w.wasServed(0, o.Token.Fence)
				})
				if members := v.Assignment().Members; len(members) != 1 || !members[0].Since.Equal(joined) {
					w.Errorf("b has left: joined %v, members %+v", joined, members)
				}
			})
		})
	}
}
