package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

// asProgram makes the test binary be claimctl, which saves building it.
const asProgram = "CLAIMCTL_AS_PROGRAM"

// commands are what else the test binary is with asProgram, by its first argument.
var commands = map[string]func(arg string){}

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if command := commands[os.Args[1]]; command != nil {
			command(os.Args[2])
		}
		main()
	}
	// Most tests here wait for leases and for processes.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testetcd.Main(m)
}

// program is the path of what is claimctl with asProgram in its environment.
func program(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// world is a prefix of an etcd, and clients of it.
type world struct {
	*testing.T
	etcd   *clientv3.Client
	prefix string
	flags  []string
	tmp    string
}

// dir is a directory of the test.
func (w *world) dir() string {
	if w.tmp == "" {
		w.tmp = w.TempDir()
	}
	return w.tmp
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOn(t, testetcd.Shared(t))
}

func worldOn(t *testing.T, server *testetcd.Server) *world {
	t.Helper()
	prefix := testetcd.Prefix(t)
	return &world{
		T: t, etcd: server.Client(t), prefix: prefix,
		flags: []string{"--endpoints", strings.Join(server.Endpoints(), ","), "--prefix", prefix, "--owner", "operator"},
	}
}

func (w *world) client(owner string) *etcdclaims.Client {
	w.Helper()
	c, err := etcdclaims.New(w.etcd, etcdclaims.Config{Prefix: w.prefix, Owner: owner})
	w.noErr(err)
	w.Cleanup(func() { w.noErr(c.Close(context.Background())) })
	return c
}

func (w *world) noErr(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) claim(c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	w.Helper()
	claim, err := c.TryAcquire(w.Context(), key, opts...)
	w.noErr(err)
	return claim
}

// isFree wants that nobody holds the key.
func (w *world) isFree(key string) {
	w.Helper()
	i, err := w.client("check").Lookup(w.Context(), key)
	if err != nil || i.Held {
		w.Errorf("%q: %+v, %v", key, i, err)
	}
}

// result is what one invocation printed and returned.
type result struct {
	out, err string
	code     int
}

// ctl runs claimctl in this process.
func (w *world) ctl(args ...string) result {
	w.Helper()
	if len(args) > 1 && args[0] == "sched" && !slices.ContainsFunc(args, func(arg string) bool { return arg == "-g" || arg == "--group" || arg == "--help" }) {
		args = append(slices.Clone(args), "-g", "default")
	}
	var out, err bytes.Buffer
	code := execute(w.Context(), append(slices.Clone(w.flags), args...), strings.NewReader(""), &out, &err)
	return result{out.String(), err.String(), code}
}

// command is the beginning of a command that claimctl prints.
func (w *world) command(program string) string {
	line := program + " --endpoints " + w.flags[1]
	if program == "claimctl" {
		line += " --prefix " + w.prefix
	}
	return line
}

// ok is what an invocation printed that must succeed.
func (w *world) ok(args ...string) string {
	w.Helper()
	r := w.ctl(args...)
	if r.code != 0 || r.err != "" {
		w.Fatalf("claimctl %q: exit code %d: %s%s", args, r.code, r.out, r.err)
	}
	return r.out
}

// fails runs an invocation that must fail with the code and the text.
func (w *world) fails(code int, text string, args ...string) {
	w.Helper()
	if r := w.ctl(args...); r.code != code || !strings.Contains(r.err, text) || strings.Count(r.err, "\n") != 1 {
		w.Errorf("claimctl %q: exit code %d, want %d; it says %q, want %q", args, r.code, code, r.err, text)
	}
}

// as decodes what an invocation printed as JSON.
func as[T any](w *world, args ...string) T {
	w.Helper()
	var v T
	out := w.ok(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		w.Fatalf("claimctl %q printed %q: %v", args, out, err)
	}
	return v
}

// eventually waits for something that another process or goroutine does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// golden compares text with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("got:\n%s\nwant (%s, written by -update):\n%s", got, file, want)
	}
}

// A misspelt command is an error, and not the help of the command above it with the exit
// code of a success.
func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for args, want := range map[string]string{
		"zzzzz":                      `unknown command "zzzzz" for "claimctl"; claimctl --help lists the commands`,
		"sched resum j":              `unknown command "resum" for "claimctl sched"; the nearest is "claimctl sched resume"`,
		"sched resum j -g billing":   `unknown command "resum" for "claimctl sched"`,
		"--prefix /a/ work retri k":  `the nearest is "claimctl work retry"`,
		"queue dead redriv mail 1":   `the nearest is "claimctl queue dead redrive"`,
		"queue zzz --help":           `unknown command "zzz" for "claimctl queue"; claimctl queue --help lists the commands`,
		"group evct orders pod-3":    `the nearest is "claimctl group evict"`,
		"epoch rais --prefix /a/":    `unknown command "rais" for "claimctl epoch"; the nearest is "claimctl epoch raise"`,
		"completion bsh":             `the nearest is "claimctl completion bash"`,
		"sched jbos --output jsonl":  `"code":64`,
		"--nope sched resum j":       `unknown flag: --nope`,
		"sched resum j --nope":       `unknown flag: --nope`,
		"sched --group g resum j -h": `unknown command "resum"`,
	} {
		w.fails(exitUsage, want, strings.Fields(args)...)
	}
	for _, args := range []string{"queue", "queue --help", "help queue", "queue dead", "", "--help", "completion"} {
		w.finds(w.ok(strings.Fields(args)...), "Usage:", "[command]")
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fails(exitUsage, `unknown command "sl" for "claimctl"; the nearest is "claimctl ls"`, "sl")
	w.fails(exitUsage, "unknown flag", "ls", "--nope")
	w.fails(exitUsage, `queue ls: lists queues; the items of "mail" are listed by queue waiting, `, "queue", "ls", "mail")
	w.fails(exitUsage, "doctor: got 1 argument; usage: claimctl doctor", "doctor", "a")
	w.fails(exitUsage, "run: --ttl -1s is not above 0", "run", "--ttl", "-1s", "k", "--", "true")
	w.fails(exitUsage, "ls: got 2 arguments; usage: claimctl ls [PREFIX]", "ls", "a", "b")
	w.fails(exitUsage, "explain: INSTANT or --at is a time such as 06:31 or ", "sched", "explain", "a")
	w.fails(exitUsage, `output "xml" is not one of`, "ls", "-o", "xml")
	w.fails(exitUsage, "Prefix", "ls", "--prefix", "x")
	w.fails(exitUsage, "invalid key", "explain", "")
	w.fails(exitUsage, "has no password", "ls", "--user", "root")
	w.fails(exitUsage, "no such file", "ls", "--cacert", "/nowhere")
	if out := w.ok("help", "exit-codes"); !strings.Contains(out, exitCodesText) {
		t.Errorf("help exit-codes: %s", out)
	}
	if out := w.ok("completion", "bash"); !strings.Contains(out, "claimctl") {
		t.Errorf("completion: %s", out)
	}
	// An error as JSON where the output is JSON.
	r := w.ctl("ls", "-o", "json", "a", "b")
	var said struct {
		Error string
		Code  int
	}
	if err := json.Unmarshal([]byte(r.err), &said); err != nil || said.Code != exitUsage || said.Error == "" {
		t.Errorf("%q: %v", r.err, err)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flags = []string{"--endpoints", "127.0.0.1:1", "--command-timeout", "300ms"}
	for _, args := range [][]string{
		{"ls"}, {"explain", "k"}, {"history", "k"}, {"watch"}, {"release", "k", "--fence", "1"}, {"epoch", "show"}, {"epoch", "raise", "--yes"},
	} {
		if r := w.ctl(args...); r.code != exitUnreachable || r.err == "" {
			t.Errorf("%q: exit code %d: %s", args, r.code, r.err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	w := newWorld(t)
	w.claim(w.client("a"), "k")
	t.Setenv("ETCDCTL_ENDPOINTS", w.flags[1])
	t.Setenv("ETCDCTL_WRITE_OUT", "fields")
	t.Setenv("CLAIMCTL_PREFIX", w.prefix)
	w.flags = nil
	if out := w.ok("ls", "-o", "name"); out != "k\n" {
		t.Errorf("ls: %q", out)
	}
	t.Setenv("ETCDCTL_WRITE_OUT", "json")
	if out := w.ok("ls"); !strings.HasPrefix(out, "[") {
		t.Errorf("ls: %q", out)
	}
	t.Setenv("ETCDCTL_DIAL_TIMEOUT", "x")
	w.fails(exitUsage, "ETCDCTL_DIAL_TIMEOUT", "ls")
}

// Keys, shells and flags are completed.
func TestCompletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client("a")
	w.claim(c, "orders/1")
	_, err := testwork.Of(c).TryBegin(t.Context(), "paid/1")
	w.noErr(err)
	q, err := queue.New(c, queue.Config{Name: "mail"})
	w.noErr(err)
	_, err = q.Enqueue(t.Context(), queue.NewItem(nil))
	w.noErr(err)
	w.noErr(q.Close(t.Context()))
	defer (&stage{world: w, a: c}).runs("b")()
	s, err := sched.New(c, sched.Config{Group: "b"})
	w.noErr(err)
	_, err = s.Define(t.Context(), sched.Definition{Name: "invoices", Schedule: "@every 1h", Kind: "k"})
	w.noErr(err)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := w.ok("completion", shell); !strings.Contains(out, "claimctl") {
			t.Errorf("%s: %s", shell, out)
		}
	}
	for typed, want := range map[string]string{
		"explain ord":         "orders/1\n",
		"release ord":         "orders/1\n",
		"watch ord":           "orders/1\n",
		"doctor --for wa":     "wait\n",
		"doctor --for note,w": "note,wait\nnote,work\n",
		"ex":                  "explain\t",
		"queue dead re":       "redrive\t",
		"release x --rea":     "--reason\t",
		"watch --until fr":    "free\n",
		"ls -o j":             "json\n",
		"work ls --state orp": "orphaned\n",
		"run ord":             "orders/1\n",
		"ls --sort-by own":    "owner\n",
		"queue stats ma":      "mail\n",
		"queue dead ls ma":    "mail\n",
		"sched show inv":      "invoices\n",
		"sched pause -g b in": "invoices\n",
		"sched jobs -g b":     "b\n",
		"work show pa":        "paid/1\n",
	} {
		args := append([]string{"__complete"}, strings.Fields(typed)...)
		if out := w.ctl(args...).out; !strings.HasPrefix(out, want) {
			t.Errorf("%q completes to %q, want %q", typed, out, want)
		}
	}
}
