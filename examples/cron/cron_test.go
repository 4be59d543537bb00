package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/examples/demoproc"
	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

func TestCron(t *testing.T) {
	if err := demoproc.Signals(); err != nil {
		t.Skip(err)
	}
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	bin := testetcd.Program(t, "cron")
	t.Run("OK", func(t *testing.T) {
		testetcd.SkipUnlessLong(t, "takes half a minute")
		t.Parallel()
		server := testetcd.Shared(t)
		wants := []string{
			`the clock of process-\d, the owner, is wrong by 2s now`,
			`(?m)^ +second +\d+ +\d+ +\d+ +0 +0 +0 +0$`,
			`(?m)^ +long +[1-4] .* 0 +0$`,
			`(?m)^ +overlapping +\d+ .* 0 +0$`,
			`(?m)^ +failing +\d .* 0 +0$`,
			`process-\d is killed: the one that runs the job long`,
			`process-\d, the owner, is frozen`,
			`process-\d continues`,
		}
		out, err := command(t, bin, "-for", "19s", "-endpoints", strings.Join(server.Endpoints(), ",")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		for _, want := range wants {
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("it does not say %q", want)
			}
		}
		t.Logf("%s", out)
		resp, err := server.Client(t).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range resp.Kvs {
			t.Errorf("left over: %s", kv.Key)
		}
	})
	t.Run("fails", func(t *testing.T) {
		t.Parallel()
		f := func(want string, args ...string) {
			t.Helper()
			out, err := command(t, bin, args...).CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte(want)) {
				t.Errorf("%q ended with %v and printed:\n%s\nwant it to say %q", args, err, out, want)
			}
		}
		f("want at least 15s", "-for", "1s")
		f("unexpected argument", "fast")
		f("demoetcd", "-endpoints", ",")
	})
}

func command(t *testing.T, bin string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // where its etcd lies
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
