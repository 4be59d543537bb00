//go:build unix

package group_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const stoppedPartitions = 12

// effects is the prefix of what the members write. They may not write where claims stand.
func effects(prefix string) string { return "/effects" + prefix }

// joinAndWrite is a process that joins a group, and writes to each of its partitions under the
// partition's fence until it is killed.
func joinAndWrite(endpoint, prefix string) error {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, TTL: 5 * sec})
	if err != nil {
		return err
	}
	_, err = group.Join(context.Background(), claims, config("child", stoppedPartitions), func(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
		for ctx.Err() == nil {
			_, err := claim.Txn(context.Background()).Then(clientv3.OpPut(fmt.Sprintf("%s%d", effects(prefix), partition), fmt.Sprint(claim.Fence()))).Commit()
			if err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	if err != nil {
		return err
	}
	select {}
}

func init() {
	if endpoint := os.Getenv("ETCDCLAIMS_MEMBER"); endpoint != "" {
		fmt.Fprintln(os.Stderr, joinAndWrite(endpoint, os.Getenv("ETCDCLAIMS_PREFIX")))
		os.Exit(1)
	}
}

// A member's process is stopped by SIGSTOP past its TTL. The other member has its partitions
// then. The stopped process writes nothing to them when it goes on, joins again, and has its
// share.
func TestStoppedMember(t *testing.T) {
	t.Parallel()
	server := testetcd.StartProcess(t)
	etcd, prefix := server.Client(t), testetcd.Prefix(t)
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "ETCDCLAIMS_MEMBER="+server.Endpoints()[0], "ETCDCLAIMS_PREFIX="+prefix)
	cmd.Stderr = os.Stderr
	child, err := testetcd.StartChild(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(child.Kill)

	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, TTL: 5 * sec})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = claims.Close(context.Background()) })
	var mu sync.Mutex
	began := map[int]int64{} // by partition: fence of the last term here
	m, err := group.Join(t.Context(), claims, config("here", stoppedPartitions), func(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
		mu.Lock()
		began[partition] = claim.Fence()
		mu.Unlock()
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Leave(context.Background()) })
	until := func(what string, met func(n map[string]int) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range m.View().Watch(ctx) {
			if met(counts(m.View())) {
				return
			}
		}
		t.Fatalf("%s: %v", what, counts(m.View()))
	}
	share := func(n map[string]int) bool {
		return n["child"] == stoppedPartitions/2 && n["here"] == stoppedPartitions/2
	}
	until("both have their shares", share)
	if err := child.Pause(); err != nil {
		t.Fatal(err)
	}
	until("the other has all partitions", func(n map[string]int) bool { return n["here"] == stoppedPartitions })
	time.Sleep(100 * time.Millisecond) // its handlers are called
	mu.Lock()
	fences := began
	began = map[int]int64{}
	mu.Unlock()
	if err := child.Resume(); err != nil {
		t.Fatal(err)
	}
	until("both have their shares again", share)
	got, err := etcd.Get(t.Context(), effects(prefix), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		t.Error("the child has written nothing")
	}
	for _, kv := range got.Kvs {
		var partition int
		var fence int64
		_, _ = fmt.Sscan(string(kv.Key[len(effects(prefix)):]), &partition)
		_, _ = fmt.Sscan(string(kv.Value), &fence)
		if here := fences[partition]; here > fence && kv.ModRevision > here {
			t.Errorf("partition %d: written at %d under fence %d, after the term with fence %d began", partition, kv.ModRevision, fence, here)
		}
	}
}
