package etcdguard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/etcdguard"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// world is an owner, whose requests things happen to, and a peer.
type world struct {
	*testing.T
	server *claimtest.Server
	host   *claimtest.Host
	etcd   *clientv3.Client
	claims *etcdclaims.Client
	peer   *etcdclaims.Client
}

func virtually(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: claimtest.Start(t)}
		w.host = w.server.Host(t)
		w.etcd = w.host.Etcd(t)
		w.claims = claimtest.NewClient(t, w.host, etcdclaims.Config{})
		w.peer = claimtest.NewClient(t, w.server, etcdclaims.Config{})
		f(t, w)
	})
}

// at returns the value of a key as nobody's faults touch it.
func (w *world) at(key string) string {
	w.Helper()
	resp, err := w.server.Admin().Get(context.Background(), key)
	if err != nil {
		w.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

// holders are the two ways to guard with one claim.
func (w *world) holders(cl *etcdclaims.Claim) map[string]etcdguard.Holder {
	return map[string]etcdguard.Holder{"claim": cl, "bearer": etcdguard.Bearer("", cl.Token())}
}

// What is not known is told as unknown, and what is known as what it is.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	write := claimtest.Other
	for name, tt := range map[string]struct {
		fault   claimtest.Fault
		unknown bool
		done    bool
	}{
		"request lost":             {claimtest.Fault{On: write, LoseRequest: true}, true, false},
		"reply lost":               {claimtest.Fault{On: write, LoseReply: true}, true, true},
		"unavailable, done":        {claimtest.Fault{On: write, LoseReply: true, Code: codes.Unavailable}, true, true},
		"unavailable, not done":    {claimtest.Fault{On: write, Code: codes.Unavailable}, true, false},
		"deadline of etcd, done":   {claimtest.Fault{On: write, LoseReply: true, Code: codes.DeadlineExceeded}, true, true},
		"cancelled by etcd, done":  {claimtest.Fault{On: write, LoseReply: true, Code: codes.Canceled}, true, true},
		"internal, done":           {claimtest.Fault{On: write, LoseReply: true, Code: codes.Internal}, true, true},
		"leader lost on the way":   {claimtest.Fault{On: write, Err: rpctypes.ErrGRPCTimeoutDueToLeaderFail}, true, false},
		"no leader":                {claimtest.Fault{On: write, Err: rpctypes.ErrGRPCNoLeader}, false, false},
		"no space any more":        {claimtest.Fault{On: write, LoseReply: true, Err: rpctypes.ErrGRPCNoSpace}, true, true},
		"no space":                 {claimtest.Fault{On: write, Err: rpctypes.ErrGRPCNoSpace}, true, false},
		"no permission":            {claimtest.Fault{On: write, Err: rpctypes.ErrGRPCPermissionDenied}, false, false},
		"delayed either way, done": {claimtest.Fault{On: write, DelayRequest: time.Second, DelayReply: time.Second}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				cl := claim(t, w.claims, "k")
				for kind, holder := range w.holders(cl) {
					kv := etcdguard.NewKV(w.etcd, holder)
					at := "/data/" + kind
					injected := w.host.Inject(tt.fault)
					// Created once: an If that its own first try made false would tell.
					resp, err := kv.Txn(t.Context()).If(clientv3.Compare(clientv3.CreateRevision(at), "=", 0)).Then(clientv3.OpPut(at, "v")).Commit()
					injected.Remove()
					ok := tt.done && !tt.unknown
					if (err == nil) != ok || ok && !resp.Succeeded || errors.Is(err, fencing.ErrUnknown) != tt.unknown || errors.Is(err, fencing.ErrStale) {
						t.Errorf("%s: %v, %v", kind, resp, err)
					}
					if got := w.at(at) != ""; got != tt.done {
						t.Errorf("%s: it is done: %v", kind, got)
					}
					// The owner may repeat itself, and then knows.
					if _, err := kv.Put(t.Context(), at, "again"); err != nil || w.at(at) != "again" {
						t.Errorf("%s: %v, and there is %q", kind, err, w.at(at))
					}
				}
			})
		})
	}
}

// A write that was on its way, or a process that was asleep, while the key went
// to another: it arrives and changes nothing.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"claim", "bearer"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			virtually(t, func(t *testing.T, w *world) {
				cl := claim(t, w.claims, "k")
				kv := etcdguard.NewKV(w.etcd, w.holders(cl)[kind])
				arrive, ended := make(chan struct{}), make(chan any, 1)
				w.host.Inject(claimtest.Fault{On: claimtest.Other, Hold: arrive, Ended: func(reply any, err error) { ended <- reply }})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := kv.Put(ctx, "/data", "late"); !errors.Is(err, fencing.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				if err := cl.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				newer := claim(t, w.peer, "k")
				if _, err := etcdguard.NewKV(w.server.Admin(), newer).Put(t.Context(), "/data", "new"); err != nil {
					t.Fatal(err)
				}
				close(arrive)
				<-ended
				if got := w.at("/data"); got != "new" {
					t.Errorf("there is %q", got)
				}
			})
		})
	}
}

// A machine that slept past the end of its lease wakes in the middle of its work.
func TestAsleep(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		cl := claim(t, w.claims, "k")
		bearer := etcdguard.NewKV(w.etcd, etcdguard.Bearer("", cl.Token()))
		w.host.Cut()
		time.Sleep(20 * time.Second)
		newer := claim(t, w.peer, "k")
		w.host.Heal()
		if _, err := etcdguard.NewKV(w.etcd, cl).Put(t.Context(), "/data", "late"); !errors.Is(err, etcdclaims.ErrLost) {
			t.Errorf("%v", err)
		}
		// Whoever was sent the token knows of no deadline: etcd refuses.
		_, err := bearer.Put(t.Context(), "/data", "late")
		var stale *fencing.StaleError
		if !errors.As(err, &stale) || stale.Newest != newer.Fence() {
			t.Errorf("%v, want the newest to be %d", err, newer.Fence())
		}
		if got := w.at("/data"); got != "" {
			t.Errorf("there is %q", got)
		}
	})
}

// Nothing was sent, and nothing can have been done.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		cl := claim(t, w.claims, "k")
		w.server.Stop(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := etcdguard.NewKV(w.etcd, etcdguard.Bearer("", cl.Token())).Put(ctx, "/data", "v")
		if err == nil || errors.Is(err, fencing.ErrUnknown) || errors.Is(err, fencing.ErrStale) {
			t.Errorf("%v", err)
		}
		w.server.Restart(t)
	})
}

// No guarded request goes on for ever, whatever the caller's context.
func TestEveryRequestEnds(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		cl := claim(t, w.claims, "k")
		w.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseRequest: true})
		for kind, holder := range w.holders(cl) {
			limit := 10 * time.Second
			if kind == "claim" {
				limit = min(limit, cl.Remaining())
			}
			begin := time.Now()
			_, err := etcdguard.NewKV(w.etcd, holder).Put(context.Background(), "/data", "v")
			if took := time.Since(begin); took > limit || !errors.Is(err, fencing.ErrUnknown) {
				t.Errorf("%s: %v after %v", kind, err, took)
			}
		}
		w.host.RemoveFaults()
	})
}

// A backup is restored that rewinds etcd's revisions. Until the epoch is raised a
// token from before may pass, as the doc says; from then on none does, although a
// claim of after it has the very revision. A Claim's own guard refuses at once.
func TestRestoredEtcd(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		snapshot := w.server.Snapshot(t)
		old := claim(t, w.claims, "k")
		oldKV := etcdguard.NewKV(w.server.Admin(), etcdguard.Bearer("", old.Token()))
		if _, err := oldKV.Put(t.Context(), "/data", "old"); err != nil {
			t.Fatal(err)
		}
		w.server.Restore(t, snapshot, 0)
		// Its own client cannot be asked any more: it saw the revision go back, or
		// will.
		if epoch, err := admin.RaiseEpoch(t.Context(), w.server.Admin(), "", 0); err != nil || epoch != 1 {
			t.Fatal(epoch, err)
		}
		fresh := claimtest.NewClient(t, w.server, etcdclaims.Config{})
		var now *etcdclaims.Claim
		for range 10 { // up to the old one's revision, whatever a client writes besides
			now = claim(t, fresh, "k")
			if rev := now.Fence() & (1<<47 - 1); rev >= old.Fence() {
				break
			}
			if err := now.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if now.Fence() <= old.Fence() {
			t.Fatalf("fence %d came after %d", now.Fence(), old.Fence())
		}
		_, err := oldKV.Put(t.Context(), "/data", "zombie's")
		var stale *fencing.StaleError
		if !errors.As(err, &stale) || stale.Newest != now.Fence() {
			t.Errorf("%v, want the newest to be %d", err, now.Fence())
		}
		// Nor does a forged mix of the two pass: the old epoch with the new revision.
		for _, forged := range []int64{now.Fence() & (1<<47 - 1), now.Fence() + 1<<47} {
			kv := etcdguard.NewKV(w.server.Admin(), etcdguard.Bearer("", fencing.Token{Key: "k", Fence: forged}))
			if _, err := kv.Put(t.Context(), "/data", "forged"); !errors.Is(err, fencing.ErrStale) {
				t.Errorf("fence %d: %v", forged, err)
			}
		}
		if _, err := etcdguard.NewKV(w.server.Admin(), etcdguard.Bearer("", now.Token())).Put(t.Context(), "/data", "new"); err != nil {
			t.Error(err)
		}
		if got := w.at("/data"); got != "new" {
			t.Errorf("there is %q", got)
		}
	})
}

// Reads are those of the KV within, which repeats them where it may.
func TestReadsAreRepeated(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		cl := claim(t, w.claims, "k")
		kv := etcdguard.NewKV(w.etcd, cl)
		w.host.Inject(claimtest.Fault{On: claimtest.Range, Err: rpctypes.ErrGRPCNoLeader})
		if _, err := kv.Get(t.Context(), "x"); err != nil {
			t.Error(err)
		}
	})
}
