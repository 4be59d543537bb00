package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

func TestWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	program := testetcd.Program(t, "worker")
	server := testetcd.Shared(t)
	for name, args := range map[string][]string{"OK": nil, "OK with endpoints": {"-endpoints", strings.Join(server.Endpoints(), ",")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // where its etcd lies
			cmd.WaitDelay = 10 * time.Second
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			check(t, string(out))
		})
	}
	t.Cleanup(func() {
		left, err := server.Client(t).Get(t.Context(), "/worker/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && left.Count > 0 {
			t.Errorf("%d keys are left over", left.Count)
		}
	})
}

// check wants each number once, in order, under a fence that rises with the leader.
func check(t *testing.T, out string) {
	t.Helper()
	n, fences := 0, map[string]int64{}
	var last int64
	for line := range strings.Lines(out) {
		var name string
		var got int
		var fence int64
		if _, err := fmt.Sscanf(line, "%s counts %d under fence %d", &name, &got, &fence); err != nil {
			continue
		}
		// A leader that is killed may have counted once without a word of it.
		if got <= n || got > n+2 || fence < last {
			t.Errorf("%d under %d, %s, after %d under %d", got, fence, name, n, last)
		}
		n, last, fences[name] = got, fence, fence
	}
	// On a busy machine a leader may lose its claim, so that all three lead.
	if n != 40 || len(fences) < 2 || !regexp.MustCompile(`(one|two|three) is killed`).MatchString(out) {
		t.Errorf("it says:\n%s", out)
	}
}
