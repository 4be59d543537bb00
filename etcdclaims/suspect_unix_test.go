//go:build unix

package etcdclaims_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// suspectKey is one of the keys of a process that can be suspected.
func suspectKey(i int) string { return fmt.Sprintf("key%d", i) }

// holdSuspectable claims some keys, writes under the first whenever Check allows it, and
// ends when that claim is lost.
func holdSuspectable(claims int) error {
	ctx := context.Background()
	etcd, prefix, err := childEtcd()
	if err != nil {
		return err
	}
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
	if err != nil {
		return err
	}
	var first *etcdclaims.Claim
	for i := range claims {
		cl, err := c.TryAcquire(ctx, suspectKey(i), etcdclaims.Suspectable())
		if err != nil {
			return err
		}
		if i == 0 {
			first = cl
		}
	}
	fmt.Println("held")
	for first.Check() == nil {
		// Not by Claim.Txn, which would end the claim when it is refused.
		if _, err := etcd.Txn(ctx).If(first.Guard()...).Then(clientv3.OpPut(prefix+"effect", "")).Commit(); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println(first.Err())
	return nil
}

func init() {
	if n, err := strconv.Atoi(os.Getenv("ETCDCLAIMS_SUSPECT")); err == nil {
		if err := holdSuspectable(n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// suspectable starts a process that holds some keys, and returns what it prints.
func suspectable(tb testing.TB, server *testetcd.Process, prefix string, claims int) (*testetcd.Child, *bufio.Reader) {
	tb.Helper()
	child, _, r := childProcess(tb, append(childEnv(server, prefix), fmt.Sprintf("ETCDCLAIMS_SUSPECT=%d", claims))...)
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); err != nil || line != "held\n" {
		tb.Fatal(line, err)
	}
	return child, out
}

// awaitAll waits for all keys, and returns when each was acquired.
func awaitAll(tb testing.TB, c *etcdclaims.Client, claims int) func() (at []time.Time, first *etcdclaims.Claim) {
	tb.Helper()
	var wg sync.WaitGroup
	got := make([]claimed, claims)
	for i := range got {
		wg.Go(func() { got[i] = <-acquiring(tb.Context(), c, suspectKey(i), etcdclaims.Suspectable()) })
	}
	return func() (at []time.Time, first *etcdclaims.Claim) {
		wg.Wait()
		for _, r := range got {
			noErr(tb, r.err)
			at = append(at, r.at)
		}
		return at, got[0].cl
	}
}

// The key of a process that is stopped has its next owner long before its TTL. When the
// process goes on it finds out, and nothing that it writes is accepted.
func TestSuspectAStoppedProcess(t *testing.T) {
	t.Parallel()
	server := testetcd.StartProcess(t)
	etcd, prefix := server.Client(t), testetcd.Prefix(t)
	child, out := suspectable(t, server, prefix, 1)
	c := newClient(t, etcd, etcdclaims.Config{Prefix: prefix})
	all := awaitAll(t, c, 1)
	time.Sleep(time.Second)
	noErr(t, child.Pause())
	stopped := time.Now()
	at, cl := all()
	if d := at[0].Sub(stopped); d > 9*time.Second { // its lease cannot have lapsed by then
		t.Errorf("taken over after %v", d)
	}
	noErr(t, child.Resume())
	line, err := out.ReadString('\n')
	noErr(t, err)
	noErr(t, child.Err())
	t.Log(strings.TrimSpace(line))
	effect, err := etcd.Get(t.Context(), prefix+"effect")
	noErr(t, err)
	if len(effect.Kvs) == 0 || effect.Kvs[0].ModRevision >= cl.Revision() {
		t.Errorf("written at %v, the next owner has revision %d", effect.Kvs, cl.Revision())
	}
	noErr(t, cl.Check())
}

// BenchmarkSuspicion measures the time from SIGKILL of a holder to the next owner of each
// of its keys, and of the last, with a TTL of 15 s, beside a Mutex whose session has that
// TTL. One step is one death.
func BenchmarkSuspicion(b *testing.B) {
	server := testetcd.StartProcess(b)
	for _, claims := range []int{1, 1000} {
		b.Run(fmt.Sprintf("claims=%d", claims), func(b *testing.B) {
			var took, all []time.Duration
			for range b.N {
				prefix := testetcd.Prefix(b)
				child, _ := suspectable(b, server, prefix, claims)
				acquired := awaitAll(b, newClient(b, server.Client(b), etcdclaims.Config{Prefix: prefix}), claims)
				time.Sleep(time.Duration(2000+time.Now().UnixNano()%200) * time.Millisecond)
				killed := time.Now()
				child.Kill()
				at, _ := acquired()
				for _, at := range at {
					took = append(took, at.Sub(killed))
				}
				all = append(all, slices.MaxFunc(at, time.Time.Compare).Sub(killed))
			}
			reportTimes(b, took)
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "p50-of-all-ms")
		})
	}
	b.Run("mutex", func(b *testing.B) {
		took := make([]time.Duration, 0, b.N)
		for range b.N {
			prefix := testetcd.Prefix(b)
			s, err := concurrency.NewSession(server.Client(b), concurrency.WithTTL(15))
			noErr(b, err)
			noErr(b, concurrency.NewMutex(s, prefix).Lock(b.Context()))
			m := concurrency.NewMutex(newSession(b, server.Client(b), concurrency.WithTTL(15)), prefix)
			got := make(chan error, 1)
			go func() { got <- m.Lock(b.Context()) }()
			time.Sleep(time.Second)
			died := time.Now()
			s.Orphan() // it renews no more, as if its process was killed
			noErr(b, <-got)
			took = append(took, time.Since(died))
		}
		reportTimes(b, took)
	})
}

func reportTimes(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
}
