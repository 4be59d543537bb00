// Package covered is for tests that follow a call through the code: it builds programs that count which blocks run, and
// reads what they have counted. The programs write their counters by runtime/coverage.
package covered

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/etcdclaims/claims/"

// A Block is a piece of code without branches.
type Block struct {
	File string // below the root of the module
	Line int    // where it begins
}

// Build builds a program from its folder. The packages that match the patterns, below the root of the module, count. The
// program must be one of them.
func Build(tb testing.TB, folder string, patterns ...string) (program string) {
	tb.Helper()
	program = filepath.Join(tb.TempDir(), filepath.Base(folder))
	command(tb, "build", "-cover", "-covermode=atomic", "-coverpkg="+module+strings.Join(patterns, ","+module), "-o", program, folder)
	return program
}

// Run runs a program.
func Run(tb testing.TB, program string, args ...string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), program, args...)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+tb.TempDir()) // for the counters that it has at its end
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v\n%s", err, out)
	}
}

// Blocks returns how often each block ran, as the counters in the folder show. Those of programs for tests are left out.
func Blocks(tb testing.TB, folder string) map[Block]int {
	tb.Helper()
	profile := filepath.Join(folder, "profile.txt")
	command(tb, "tool", "covdata", "textfmt", "-i="+folder, "-o="+profile)
	text, err := os.ReadFile(profile)
	if err != nil {
		tb.Fatal(err)
	}
	ran := map[Block]int{}
	for line := range strings.Lines(string(text)) { // github.com/etcdclaims/claims/sched/due.go:55.42,57.3 2 61
		var b Block
		var place, times int
		file, rest, _ := strings.Cut(line, ":")
		n, _ := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.Line, &place, &place, &place, &place, &times)
		b.File = strings.TrimPrefix(file, module)
		if n == 6 && times > 0 && !strings.Contains(b.File, "/testdata/") {
			ran[b] = max(ran[b], times)
		}
	}
	return ran
}

func command(tb testing.TB, args ...string) {
	tb.Helper()
	if out, err := exec.CommandContext(tb.Context(), "go", args...).CombinedOutput(); err != nil {
		tb.Fatalf("go %s: %v\n%s", args[0], err, out)
	}
}
