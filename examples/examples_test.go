// Package examples_test builds the examples and claimctl-dev, and runs them as their users do.
package examples_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

// Each example has its test, which gets its program.
var tests = map[string]func(t *testing.T, program string){
	"claimctl-dev": testDev,
	"cron":         testCron,
	"hello":        testHello,
	"queue":        testQueue,
	"quickstart":   testQuickstart,
	"shards":       testShards,
}

func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs and runs them in real time")
	}
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", bin, "./...", "../cmd/claimctl-dev").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	programs, err := os.ReadDir(bin)
	if err != nil || len(programs) != len(tests) {
		t.Errorf("%d programs, %v; there are tests of %q", len(programs), err, slices.Sorted(maps.Keys(tests)))
	}
	for _, program := range programs {
		name := strings.TrimSuffix(program.Name(), ".exe")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test, ok := tests[name]
			if !ok {
				t.Fatal("it has no test")
			}
			test(t, filepath.Join(bin, program.Name()))
		})
	}
}

// command returns a run of a program.
func command(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // where its etcd lies
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// output returns what a run prints to standard output.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	var logs strings.Builder
	cmd := command(t, program, args...)
	cmd.Stderr = &logs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s%s", err, out, &logs)
	}
	return string(out)
}

// elsewhere is the argument for an etcd that the example does not start.
func elsewhere(server *testetcd.Server) string {
	return "-endpoints=" + strings.Join(server.Endpoints(), ",")
}

// checkEmpty checks that the program leaves nothing in an etcd not its own.
func checkEmpty(t *testing.T, server *testetcd.Server) {
	t.Helper()
	resp, err := server.Client(t).Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		t.Errorf("left over: %s", kv.Key)
	}
}

// prints runs the program in an etcd of its own and in another, where it leaves nothing.
func prints(t *testing.T, program, story string) {
	t.Helper()
	server := testetcd.Start(t)
	for _, args := range [][]string{nil, {elsewhere(server)}} {
		if got := output(t, program, args...); got != story {
			t.Errorf("%q: got\n%swant\n%s", args, got, story)
		}
	}
	checkEmpty(t, server)
}

func testCron(t *testing.T, program string) {
	server := testetcd.Start(t)
	out := output(t, program, elsewhere(server))
	story := regexp.MustCompile(`^(member-\d) is the owner now, and admits all ticks\n(?s:.*)(member-\d) leaves\n(?s:.*)(member-\d) is the owner now(?s:.*)\n\d+ ticks of count were due, \d+ ran\n$`)
	match := story.FindStringSubmatch(out)
	if match == nil || match[1] != match[2] || match[2] == match[3] || strings.Count(out, " reports for ") < 2 {
		t.Error(out)
	}
	checkEmpty(t, server)
}

func testQueue(t *testing.T, program string) {
	prints(t, program, `worker-1 enqueued 30 of 30 orders
worker-2 enqueued 0 of 30 orders
dead letter order-13 after 1 attempt: failed: no such street
30 orders: 29 shipped, 1 dead letters
`)
}

func testShards(t *testing.T, program string) {
	prints(t, program, `partitions: member-1 4 member-2 4 member-3 4
partitions: member-1 3 member-2 3 member-3 3 member-4 3
partitions: member-2 4 member-3 4 member-4 4
the late write of member-1 is refused: true
each partition was counted one by one
`)
}

func testHello(t *testing.T, program string) {
	server := testetcd.Start(t)
	// Each run prints the same lines in the same order, but for times and fences.
	t.Run("same story", func(t *testing.T) {
		const story = `bob cannot have it: acquire "account/7": held by alice since TIME, free at TIME at the latest if it is not renewed (fence N)
alice learns of it: etcdclaims: claim on "account/7" (fence N) lost: deleted: release forced by bob: alice does not answer
alice held it with fence N, bob holds it with fence N
alice's late write is refused: true
`
		times, fences := regexp.MustCompile(`20\d\d-\S+Z`), regexp.MustCompile(`fence \d+`)
		for i := range 20 {
			var args []string
			if i > 0 {
				args = append(args, elsewhere(server))
			}
			got := fences.ReplaceAllString(times.ReplaceAllString(output(t, program, args...), "TIME"), "fence N")
			if got != story {
				t.Fatalf("got\n%swant\n%s", got, story)
			}
		}
	})
	// It ends no claim that another program holds: neither one under the default prefix nor one
	// under its own.
	t.Run("takes nothing", func(t *testing.T) {
		for prefix, want := range map[string]string{etcdclaims.DefaultPrefix: "", "/hello/": `"account/7": held by production`} {
			production, err := etcdclaims.New(server.Client(t), etcdclaims.Config{Prefix: prefix, Owner: "production"})
			if err != nil {
				t.Fatal(err)
			}
			defer production.Close(t.Context())
			claim, err := production.TryAcquire(t.Context(), "account/7")
			if err != nil {
				t.Fatal(err)
			}
			if out, err := command(t, program, elsewhere(server)).CombinedOutput(); (err == nil) != (want == "") || !strings.Contains(string(out), want) {
				t.Errorf("under %s: %v, want %q\n%s", prefix, err, want, out)
			}
			if owns, err := claim.Owns(t.Context()); !owns {
				t.Errorf("the claim under %s has ended: %v", prefix, err)
			}
			if err := claim.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
