package claims_test

import (
	"os"
	"strings"
	"testing"
)

// The program of the README is the one that the package's Example compiles and
// runs, but for where it dials.
func TestReadmeIsCompiled(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("etcdclaims/example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	block, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatal("README.md has no block of go")
	}
	left := string(example)
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		if line == "" || strings.Contains(line, "clientv3.New(") {
			continue
		}
		_, after, found := strings.Cut(left, line)
		if !found {
			t.Errorf("%q is not in the Example, or not in this order", line)
			continue
		}
		left = after
	}
}
