//go:build unix

package scenarios_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

var rounds = flag.Int("rounds", 0, "how often TestPausedLeader pauses a leader; each takes about 10 s")

const (
	leaseTTL = 5
	pause    = 7 * time.Second
)

// plainMember is a member of etcd.
type plainMember struct {
	client string
	cmd    *exec.Cmd
}

// TestPausedLeader pauses the leader for longer than the TTL of a lease that is renewed
// through the other members, and counts how often it is revoked nevertheless.
func TestPausedLeader(t *testing.T) {
	if *rounds == 0 {
		t.Skip("takes minutes: run with -rounds 24")
	}
	members := plainMembers(t)
	lost := 0
	for round := range *rounds {
		if left, is := pausedLeader(t, members); is {
			lost++
			t.Logf("round %d: revoked %s after it was renewed", round, left.Round(time.Millisecond))
		}
	}
	t.Logf("a renewed lease was revoked in %d of %d rounds", lost, *rounds)
	if lost == 0 {
		t.Error("no lease was revoked: the fault may be mended")
	}
}

// pausedLeader is one round. It returns how long before its revocation the lease was
// renewed, and whether it was revoked.
func pausedLeader(t *testing.T, members []plainMember) (time.Duration, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leader := leaderOf(ctx, t, members)
	var others []string
	for i, m := range members {
		if i != leader {
			others = append(others, m.client)
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: others, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lease, err := client.Grant(ctx, leaseTTL)
	if err != nil {
		t.Fatal(err)
	}
	const keys = 20
	for i := range keys {
		if _, err := client.Put(ctx, fmt.Sprint("claim/", lease.ID, "/", i), "", clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	var renewed time.Time
	renew := func() bool {
		one, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		sent := time.Now()
		resp, err := client.KeepAliveOnce(one, lease.ID)
		if err == nil && resp.TTL > 0 {
			renewed = sent
		}
		return err == nil
	}
	paused := members[leader].cmd.Process
	if err := paused.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer paused.Signal(syscall.SIGCONT) //nolint:errcheck // it runs already
	for began := time.Now(); time.Since(began) < pause; time.Sleep(300 * time.Millisecond) {
		renew()
	}
	if time.Since(renewed) > time.Second {
		return 0, false // no new leader renewed it: nothing is shown
	}
	if err := paused.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// It is never without a renewal for longer than half a second.
	for resumed := time.Now(); time.Since(resumed) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		if resp, err := client.Get(ctx, fmt.Sprint("claim/", lease.ID, "/"), clientv3.WithPrefix(), clientv3.WithCountOnly()); err == nil && resp.Count < keys {
			return time.Since(renewed), true
		}
		renew()
	}
	_, _ = client.Revoke(ctx, lease.ID)
	return 0, false
}

func leaderOf(ctx context.Context, t *testing.T, members []plainMember) int {
	t.Helper()
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		for i, m := range members {
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			status, err := client.Status(ctx, m.client)
			_ = client.Close()
			if err == nil && status.Leader == status.Header.MemberId {
				return i
			}
		}
	}
	t.Fatal("there is no leader")
	return 0
}

// plainMembers starts a cluster.
func plainMembers(t *testing.T) []plainMember {
	t.Helper()
	const size = 3
	var addrs, initial []string
	var listeners []net.Listener
	for range 2 * size {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, lis)
		addrs = append(addrs, lis.Addr().String())
	}
	for _, lis := range listeners { // only now, so that no two are equal
		_ = lis.Close()
	}
	for i := range size {
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, addrs[size+i]))
	}
	dir := t.TempDir()
	etcd := filepath.Join(dir, "etcd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", etcd, "go.etcd.io/etcd/server/v3").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	var members []plainMember
	for i := range size {
		name := fmt.Sprintf("m%d", i)
		client, peer := "http://"+addrs[i], "http://"+addrs[size+i]
		cmd := exec.Command(etcd, "-name", name, "-data-dir", filepath.Join(dir, name), "-log-level", "fatal",
			"-initial-cluster", strings.Join(initial, ","), "-initial-advertise-peer-urls", peer, "-listen-peer-urls", peer,
			"-advertise-client-urls", client, "-listen-client-urls", client)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		members = append(members, plainMember{addrs[i], cmd})
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	return members
}
