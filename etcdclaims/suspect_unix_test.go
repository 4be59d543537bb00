//go:build unix

package etcdclaims_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// holdSuspectable claims a key, writes under it whenever Check allows it, and ends when
// the claim is lost.
func holdSuspectable() error {
	ctx := context.Background()
	etcd, prefix, err := childEtcd()
	if err != nil {
		return err
	}
	c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix})
	if err != nil {
		return err
	}
	cl, err := c.TryAcquire(ctx, "k", etcdclaims.Suspectable())
	if err != nil {
		return err
	}
	fmt.Println("held")
	for cl.Check() == nil {
		// Not by Claim.Txn, which would end the claim when it is refused.
		if _, err := etcd.Txn(ctx).If(cl.Guard()...).Then(clientv3.OpPut(prefix+"effect", "")).Commit(); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println(cl.Err())
	return nil
}

func init() {
	if os.Getenv("ETCDCLAIMS_SUSPECT") == "" {
		return
	}
	if err := holdSuspectable(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The key of a process that is stopped has its next owner long before its TTL. When the
// process goes on it finds out, and nothing that it writes is accepted.
func TestSuspectAStoppedProcess(t *testing.T) {
	t.Parallel()
	server := testetcd.StartProcess(t)
	etcd, prefix := server.Client(t), testetcd.Prefix(t)
	child, _, r := childProcess(t, append(childEnv(server, prefix), "ETCDCLAIMS_SUSPECT=1")...)
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); err != nil || line != "held\n" {
		t.Fatal(line, err)
	}
	acquired := acquiring(t.Context(), newClient(t, etcd, etcdclaims.Config{Prefix: prefix}), "k", etcdclaims.Suspectable())
	time.Sleep(time.Second)
	noErr(t, child.Pause())
	stopped := time.Now()
	next := <-acquired
	noErr(t, next.err)
	if d := next.at.Sub(stopped); d > 9*time.Second { // its lease cannot have lapsed by then
		t.Errorf("taken over after %v", d)
	}
	noErr(t, child.Resume())
	line, err := out.ReadString('\n')
	noErr(t, err)
	noErr(t, child.Err())
	t.Log(strings.TrimSpace(line))
	effect, err := etcd.Get(t.Context(), prefix+"effect")
	noErr(t, err)
	if len(effect.Kvs) == 0 || effect.Kvs[0].ModRevision >= next.cl.Revision() {
		t.Errorf("written at %v, the next owner has revision %d", effect.Kvs, next.cl.Revision())
	}
	noErr(t, next.cl.Check())
}
