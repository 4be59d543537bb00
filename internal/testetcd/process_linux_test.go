package testetcd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/server/v3/embed"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	p := testetcd.StartProcess(t)
	c := p.Client(t)
	put(t, c, "/k", "v")
	if info, err := os.Stat(p.Dir() + "/member"); err != nil || !info.IsDir() {
		t.Errorf("no data in Dir: %v", err)
	}

	p.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	// It may be carried out yet, when the server goes on.
	if _, err := c.Put(ctx, "/late", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("put to a paused server: %v", err)
	}
	p.Pause(t) // it is already
	p.Resume(t)
	p.Resume(t)
	put(t, c, "/k", "w")

	pid := p.Pid()
	p.Kill(t)
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("killed process %d still exists: %v", pid, err)
	}
	if got := p.Pid(); got != 0 {
		t.Errorf("killed, but Pid is %d", got)
	}
	p.Kill(t) // nothing to do
	p.Restart(t)
	if got := p.Pid(); got == 0 || got == pid {
		t.Errorf("Pid after restart is %d, before it was %d", got, pid)
	}
	if v := get(t, p.Client(t), "/k"); v != "w" {
		t.Errorf("value after restart is %q", v)
	}
	p.Pause(t)
	p.Restart(t) // kills it although it is paused
	if v := get(t, p.Client(t), "/k"); v != "w" {
		t.Errorf("value after second restart is %q", v)
	}
	p.Pause(t) // and leaves it so to the end of the test
}

func TestProcessOptions(t *testing.T) {
	t.Parallel()
	p := testetcd.StartProcess(t, testetcd.MaxTxnOps(3), testetcd.Quota(5<<19), testetcd.NoSync(),
		testetcd.Tweak(func(cfg *embed.Config) { cfg.MaxRequestBytes = 3 << 20 }))
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid()))
	if err != nil {
		t.Skip(err)
	}
	for _, flag := range []string{"--max-txn-ops=3", "--quota-backend-bytes=2621440", "--unsafe-no-fsync=true", "--max-request-bytes=3145728"} {
		if !strings.Contains(string(cmdline), flag+"\x00") {
			t.Errorf("no flag %s in %q", flag, cmdline)
		}
	}
	checkOptions(t, p.Client(t))
}

func TestProcessCluster(t *testing.T) {
	testetcd.SkipUnlessLong(t, "waits for elections")
	t.Parallel()
	ps := testetcd.StartProcessCluster(t, 3, testetcd.NoSync())
	put(t, ps[0].Client(t), "/k", "v")
	for i, p := range ps {
		if v := get(t, p.Client(t), "/k"); v != "v" {
			t.Errorf("member %d has %q", i, v)
		}
	}
	ps[0].Kill(t)
	// It may have led, and until another does, requests fail.
	c, ctx := ps[1].Client(t), deadline(t)
	for {
		_, err := c.Put(ctx, "/after", "v")
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	ps[0].Restart(t)
	if v := get(t, ps[0].Client(t), "/after"); v != "v" {
		t.Errorf("restarted member has %q", v)
	}
	for _, p := range ps {
		p.Kill(t)
	}
	for _, p := range ps {
		p.Restart(t)
	}
	if v := get(t, ps[0].Client(t), "/after"); v != "v" {
		t.Errorf("after all were killed the value is %q", v)
	}
}

const orphanEnv = "TESTETCD_ORPHAN"

// TestProcessOrphan kills a test binary with SIGKILL, which therefore cannot
// clean up, and looks for the etcd it has started and paused.
func TestProcessOrphan(t *testing.T) {
	if os.Getenv(orphanEnv) != "" {
		p := testetcd.StartProcess(t, testetcd.NoSync())
		p.Pause(t)
		fmt.Printf("\netcd is %d in %s\n", p.Pid(), p.Dir())
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, should it fail to kill this
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestProcessOrphan$")
	cmd.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+os.TempDir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, dir := 0, ""
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "etcd is %d in %s", &pid, &dir)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if pid == 0 {
		t.Fatal("no etcd was started")
	}
	// It could not remove its temporary directory either, which is two above.
	defer func() { _ = os.RemoveAll(filepath.Dir(filepath.Dir(dir))) }()
	ctx := deadline(t)
	// It may remain as a zombie where nobody reaps those without a parent.
	for syscall.Kill(pid, 0) == nil && !isZombie(pid) {
		select {
		case <-ctx.Done():
			t.Fatalf("etcd %d outlives the tests that started it", pid)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestStallDisk(t *testing.T) {
	testetcd.SkipUnlessLong(t, "builds another etcd")
	t.Parallel()
	p := testetcd.StartProcess(t, testetcd.StallableDisk())
	c := p.Client(t)
	for range 2 {
		put(t, c, "/k", "v")
		if err := p.StallDisk(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if _, err := c.Put(ctx, "/k", "w"); err == nil { // the server may notice first that time is up
			t.Error("put to a disk that stalls")
		}
		cancel()
		if err := p.ResumeDisk(); err != nil {
			t.Fatal(err)
		}
	}
	put(t, c, "/k", "v")
	if err := p.ResumeDisk(); err != nil {
		t.Errorf("a disk that does not stall: %v", err)
	}
	if err := testetcd.StartProcess(t).StallDisk(); err == nil {
		t.Error("the disk of an ordinary etcd stalls")
	}
}
