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

func TestShards(t *testing.T) {
	testetcd.SkipUnlessLong(t, "runs twelve processes")
	if err := demoproc.Signals(); err != nil {
		t.Skip(err)
	}
	bin := testetcd.Program(t, "shards")
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		cmd.WaitDelay = 10 * time.Second
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	server := testetcd.Shared(t)
	text, err := run("-events", "20000", "-batches", "10", "-timeout", "3m", "-endpoints", strings.Join(server.Endpoints(), ","))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	for _, want := range []string{
		`9 members own all partitions, 28 to 29 each`,
		`12 members own all partitions, 21 to 22 each`,
		`worker-03 is about to write the total of partition \d+ with fence \d+`,
		`worker-03 is frozen`,
		`worker-01 is killed`,
		`their partitions have other owners after \S+ s`,
		`worker-03 cannot write the total of partition \d+ with fence \d+: `,
		`10 members own all partitions, 25 to 26 each`,
		`worker-04 leaves`,
		`20000 events, sum \d+: as one process counts; [1-9]\d* late writes refused`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("it does not print %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	resp, err := server.Client(t).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		if !bytes.Contains(kv.Key, []byte("/claims/session/")) { // of killed workers
			t.Errorf("left over: %s", kv.Key)
		}
	}
	if text, err := run("-events", "3"); err == nil || !strings.Contains(text, "want at least 256") {
		t.Errorf("%v: %s", err, text)
	}
}
