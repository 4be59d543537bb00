package claims_test

import (
	"os"
	"strings"
	"testing"
)

// The programs of the README are ones that are compiled and run: the first is
// the package's Example, but for where it dials, the second one of sched, the third
// a test of claimtest.
func TestReadmeIsCompiled(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(readme)
	for _, name := range []string{"etcdclaims/example_test.go", "sched/readme_test.go", "etcdclaims/claimtest/readme_test.go"} {
		compiled, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, after, ok := strings.Cut(rest, "```go\n")
		block, after, closed := strings.Cut(after, "\n```")
		if !ok || !closed {
			t.Fatalf("README.md has no block of go for %s", name)
		}
		rest = after
		left := string(compiled)
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			if line == "" || strings.Contains(line, "clientv3.New(") {
				continue
			}
			_, after, found := strings.Cut(left, line)
			if !found {
				t.Errorf("%q is not in %s, or not in this order", line, name)
				continue
			}
			left = after
		}
	}
	if strings.Contains(rest, "```go") {
		t.Error("README.md has a block of go that nothing compiles")
	}
}
