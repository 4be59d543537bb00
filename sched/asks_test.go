package sched_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// rarely is due at midnight only.
var rarely = calendar.Must(calendar.Every(24*time.Hour, 0))

// Several that are asked for at once are decided about one after the other.
func TestRunNowThreeTimes(t *testing.T) {
	for _, tt := range []struct {
		overlap     sched.Overlap
		least, most int // that run to their end: more if the first is begun before the second is decided about
	}{
		{sched.Skip{}, 1, 1},
		{sched.BufferOne{}, 1, 2},
		{sched.BufferAll{Max: 1}, 1, 2},
		{sched.CancelRunning{}, 1, 1},
		{sched.Allow{}, 3, 3},
	} {
		t.Run(fmt.Sprintf("%T", tt.overlap), func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				f.do(sched.Job{Name: "a", Schedule: rarely, Overlap: tt.overlap}, 20*time.Second)
				f.do(sched.Job{Name: "b", Schedule: minutely}, 0)
				n := f.start(0)
				f.until("00:00:10")
				n.stop()
				for range 3 {
					time.Sleep(time.Millisecond)
					noErr(t, second(f.console().RunNow(t.Context(), "a")))
				}
				f.start(0)
				f.until("00:03:30")
				done, got := 0, f.entries("a")
				for _, e := range got {
					if e.Outcome == sched.OutcomeOK {
						done++
					}
				}
				if done < tt.least || done > tt.most || len(got) != 3 {
					t.Errorf("%v, want %d to %d ok of 3", got, tt.least, tt.most)
				}
				f.ledger.want(t, "b", "00:01:00", "00:02:00", "00:03:00")
			})
		})
	}
}

// A request that etcd will never accept keeps no tick of any job from its time.
func TestAskThatIsTooLarge(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: minutely}, 0)
		f.start(0)
		f.until("00:01:50")
		// Encoded again it is six times as long.
		ask := `{"v":1,"job":"a","id":"x","at":"2000-01-01T00:01:00Z","by":"` + strings.Repeat("<", 280_000) + `"}`
		noErr(t, second(f.etcd.Put(t.Context(), sched.Asks(prefix, "default")+"x", ask)))
		f.until("00:02:05")
		f.ledger.want(t, "a", "00:01:00", "00:02:00")
	})
}

// Where the reply is lost, and the lease after that, nobody says that an operation
// was not done; so nothing tries it again.
func TestOperationOnALostLease(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "a", Schedule: rarely}, 0)
		f.start(0)
		f.until("00:00:10")
		host := f.server.Host(t)
		s, err := sched.New(claimtest.NewClient(t, host, etcdclaims.Config{Prefix: prefix, Owner: "console", TTL: ttl}), f.cfg)
		noErr(t, err)
		noErr(t, second(s.RunNow(t.Context(), "a")))
		f.until("00:00:20")
		lose := func() {
			host.Inject(claimtest.Fault{On: claimtest.Acquire, Times: 1, LoseReply: true})
			go func() {
				time.Sleep(300 * time.Millisecond)
				resp, err := f.etcd.Get(t.Context(), prefix+"own/sched/default/op/", clientv3.WithPrefix())
				if err != nil || len(resp.Kvs) == 0 {
					t.Error("no operation: ", err)
					return
				}
				f.server.Revoke(t, string(resp.Kvs[0].Key))
			}()
		}
		lose()
		_, err = s.RunNow(t.Context(), "a")
		wantIs(t, err, etcdclaims.ErrUnknown)
		f.until("00:01:00")
		if got := f.ledger.all("a"); len(got) != 2 {
			t.Errorf("%v", got)
		}
		lose()
		wantIs(t, s.Pause(t.Context(), "a", ""), etcdclaims.ErrUnknown)
		if f.inspect("a").Paused == nil {
			t.Error("not paused: this tests nothing")
		}
	})
}
