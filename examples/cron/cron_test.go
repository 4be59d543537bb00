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

	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

func TestCron(t *testing.T) {
	if err := testetcd.Signals(); err != nil {
		t.Skip(err)
	}
	bin := testetcd.Program(t, "cron")
	t.Run("OK", func(t *testing.T) {
		t.Parallel()
		server := testetcd.Shared(t)
		out, err := command(t, bin, "-for", "30s", "-work", "5s", "-endpoints", strings.Join(server.Endpoints(), ",")).CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		for _, want := range []string{
			`process-\d is killed: it had "minute"`,
			`the clock of process-\d, the owner of group real, is off by 2s`,
			`process-\d is frozen, the owner of group real`,
			`process-\d goes on`,
			`(?m)^second +\d+ +\d+ +\d{2} +\d+ +0 +0 +0 +0$`,
			`(?m)^minute +[12] +[12] +[12] +[1-9] +0 +[01] +0 +0$`,
			`(?m)^midnight +\d .* 0 +0$`,
			`(?m)^overlapping +\d+ .* 0 +0$`,
			`(?m)^failing +\d .* 0 +0$`,
		} {
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
		f("want 10s at least", "-for", "1s")
		f("some work", "-work", "0s")
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
