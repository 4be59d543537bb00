package testetcd

import (
	"crypto/rand"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// long is the flag -long of tests that run by Main, nil in programs.
var long *bool

// Long reports whether the tests run with -long, as they do before a merge: with
// more cases and rounds than go test needs to find what breaks often.
func Long() bool { return long != nil && *long }

// SkipUnlessLong skips a test that takes long, unless it runs with -long.
func SkipUnlessLong(tb testing.TB, why string) {
	tb.Helper()
	if !Long() {
		tb.Skipf("%s: run with -long", why)
	}
}

// SkipRace skips, under -short with the race detector, a test whose goroutines run in
// other tests too. It is for tests that count requests or wait for long leases, and would
// take a large part of the time that the checks before a merge have.
func SkipRace(tb testing.TB) {
	tb.Helper()
	if race && testing.Short() {
		tb.Skip("runs without the race detector, or without -short")
	}
}

// Fewer returns few under -short with the race detector, and else many. It is for tests
// whose goroutines do the same in any number, or for any time.
func Fewer[T any](many, few T) T {
	if race && testing.Short() {
		return few
	}
	return many
}

// Sample skips three of four tests under -short, by their names, for tables and
// suites with many cases. Under the race detector it skips five of six.
func Sample(tb testing.TB) {
	tb.Helper()
	if testing.Short() && !oneOf(tb.Name(), Fewer[uint32](4, 6)) {
		tb.Skip("only some of the cases run under -short")
	}
}

// Third skips two of three cases of a table with hundreds, by their names, unless Long or with the
// environment variable TESTETCD_CASES=all, which adds no tests that take long.
func Third(tb testing.TB) {
	tb.Helper()
	switch {
	case testing.Short():
		Sample(tb)
	case Long() || os.Getenv("TESTETCD_CASES") == "all" || oneOf(tb.Name(), 3):
	default:
		tb.Skip("one of many cases: run with -long")
	}
}

// oneOf reports whether a name is one of n.
func oneOf(name string, n uint32) bool { return crc32.ChecksumIEEE([]byte(name))%n == 0 }

// Main runs the tests of a package, stops the server of [Shared], and fails if
// goroutines are left over. It exits the process.
//
//	func TestMain(m *testing.M) { testetcd.Main(m) }
func Main(m *testing.M, opts ...goleak.Option) {
	long = flag.Bool("long", false, "also run the tests and cases that take long")
	// All timers of a synctest bubble share one context of the race detector, which
	// two threads must not use at once: its own memory gets corrupted, and the
	// process dies (https://go.dev/issue/78156). The flag -cpu still overrules this.
	if race {
		runtime.GOMAXPROCS(1)
	}
	collectRarely()
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	// After a failure leaks are a consequence rather than a finding.
	if code == 0 {
		if err := findLeaks(opts); err != nil {
			fmt.Fprintf(os.Stderr, "testetcd: goroutines are left over: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// collectRarely lets the heap grow before it is collected: servers in virtual time make garbage
// by the gigabyte, and to collect it at the default rate is a fifth of the processor time of tests.
// What the environment says goes first.
func collectRarely() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(800)
		debug.SetMemoryLimit(1 << 30)
	}
}

// findLeaks gives goroutines more time to end than goleak does by itself: those
// of etcd's peer connections and of gRPC outlive the call that stops them.
func findLeaks(opts []goleak.Option) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := goleak.Find(opts...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

var shared struct {
	sync.Mutex
	server *Server
	dir    string
	err    error
}

// Shared returns the one server that all tests of the package may use. It is
// started at first use and stopped by [Main]. Tests keep out of each other's
// way with [Prefix]; those that change the whole server, like enabling
// authentication, compacting or stopping it, need one of their own.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	s, err := theShared()
	if err != nil {
		tb.Fatalf("testetcd: start shared server: %v", err)
	}
	return s
}

// SharedEndpoints is [Shared] for testable examples, which have no
// [testing.TB]. It panics if the server cannot be started.
func SharedEndpoints() []string {
	s, err := theShared()
	if err != nil {
		panic(fmt.Sprintf("testetcd: start shared server: %v", err))
	}
	return s.Endpoints()
}

func theShared() (*Server, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.dir, shared.err = startShared()
	}
	return shared.server, shared.err
}

func startShared() (*Server, string, error) {
	// The directory of a test would be gone with that test.
	dir, err := os.MkdirTemp("", "testetcd-shared-*")
	if err != nil {
		return nil, "", err
	}
	members, err := newMembers(1, dir)
	if err != nil {
		return nil, dir, err
	}
	s := &Server{member: members[0]}
	return s, dir, s.start()
}

func stopShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.crash()
		shared.server = nil
		shared.err = fmt.Errorf("all tests have ended")
	}
	if shared.dir == "" {
		return nil
	}
	return os.RemoveAll(shared.dir)
}

var prefixes atomic.Int64

// Prefix returns a key prefix that nobody else uses. It ends in a slash.
func Prefix(tb testing.TB) string {
	tb.Helper()
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '_'
	}, tb.Name())
	if len(name) > 80 {
		name = name[:80]
	}
	return fmt.Sprintf("/%s-%d-%s/", name, prefixes.Add(1), strings.ToLower(rand.Text()[:8]))
}
