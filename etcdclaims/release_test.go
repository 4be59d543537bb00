package etcdclaims_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A key in the line that is no waiter's, by whatever hand, costs a release a request
// or two, is not handed the key, and keeps nothing.
func TestReleaseBehindForeignPlace(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for name, value := range map[string]string{"empty": "", "JSON": "{}", "of a waiter": `{"v":1,"claim":"z","owner":"o","instance":"i"}`, "newer": `{"v":99}`} {
		for _, place := range []string{"x", "x/y", "x/y/", "/"} {
			for _, leased := range []bool{false, true} {
				for _, waits := range []bool{false, true} {
					virtualCase(t, strings.Join([]string{name, place}, ", "), func(t *testing.T, w *world) {
						a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
						host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: time.Millisecond})
						line := w.lineOf(a, "k")
						cl := tryClaim(t, a, "k")
						lease := clientv3.NoLease
						if leased {
							granted, err := w.Raw.Grant(bg, 3600)
							noErr(t, err)
							lease = granted.ID
						}
						_, err := w.Raw.Put(bg, line+place, value, clientv3.WithLease(lease))
						noErr(t, err)
						if waits {
							ctx, cancel := context.WithCancel(bg)
							defer cancel()
							go func() { _, _ = a.Acquire(ctx, "k") }()
							time.Sleep(sec)
						}
						before := a.Stats().Requests
						noErr(t, cl.Release(bg))
						if n := a.Stats().Requests - before; n > 12 {
							t.Errorf("%d requests", n)
						}
						if v := w.get("own/k"); v != "" && !strings.Contains(v, a.Instance()) {
							t.Errorf("the key was given to %q", v)
						}
					})
				}
			}
		}
	}
}

// lineOf returns the prefix of those in line for a key.
func (w *world) lineOf(c *etcdclaims.Client, key string) string {
	w.Helper()
	cl := tryClaim(w.T, c, key)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _, _ = w.peer().Acquire(ctx, key) }()
	time.Sleep(sec)
	defer func() { release(w.T, cl); time.Sleep(sec) }()
	for k := range w.All() {
		if i := strings.LastIndex(k, "/"); strings.HasPrefix(k, w.Prefix+"wait/") {
			cancel()
			time.Sleep(sec)
			return k[:i+1]
		}
	}
	w.Fatal("nobody waits")
	return ""
}

// Reentrant shares no claim whose handlers are told to stop, or that is over.
func TestReentrantSharesNoEndedClaim(t *testing.T) {
	t.Parallel()
	bg := context.Background()
	for how, end := range map[string]func(w *world, host *claimtest.Host){
		"past the soft deadline":  func(_ *world, host *claimtest.Host) { host.Cut(); time.Sleep(12 * sec) },
		"past the hard deadline":  func(_ *world, host *claimtest.Host) { host.Suspend(time.Hour) },
		"asleep, near the end":    func(_ *world, host *claimtest.Host) { host.Suspend(11 * sec) },
		"in the drain of MaxHold": func(*world, *claimtest.Host) { time.Sleep(58 * sec) },
		"renewed after the drain began": func(_ *world, host *claimtest.Host) {
			host.Cut()
			time.Sleep(12 * sec)
			host.Heal()
			time.Sleep(3 * sec)
		},
	} {
		virtualCase(t, how, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
			tryClaim(t, a, "k", etcdclaims.MaxHold(time.Minute))
			end(w, host)
			cl, err := a.TryAcquire(bg, "k", etcdclaims.Reentrant())
			if err == nil {
				t.Errorf("shared: context %v, Check %v, %v left", cl.Context().Err(), cl.Check(), cl.Remaining())
			}
			host.Heal()
		})
	}
}
