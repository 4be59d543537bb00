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
func Build(t testing.TB, folder string, patterns ...string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), filepath.Base(folder))
	command(t, "build", "-cover", "-covermode=atomic", "-coverpkg="+module+strings.Join(patterns, ","+module), "-o", program, folder)
	return program
}

// Run runs a program.
func Run(t testing.TB, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+t.TempDir()) // for the counters that it has at its end
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Blocks returns how often each block ran, as the counters in the folder show. Those of programs for tests are left out.
func Blocks(t testing.TB, folder string) map[Block]int {
	t.Helper()
	profile := filepath.Join(folder, "profile.txt")
	command(t, "tool", "covdata", "textfmt", "-i="+folder, "-o="+profile)
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
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

func command(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, out)
	}
}
