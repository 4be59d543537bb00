package queue_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/queue.md names exist.
func TestDocsNameTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "queue.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(b)
	}
	names := regexp.MustCompile("`(Test[A-Z][A-Za-z]*)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 30 {
		t.Errorf("docs/queue.md names %d tests", len(names))
	}
	for _, name := range names {
		if !strings.Contains(code.String(), "\nfunc "+name[1]+"(t *testing.T)") {
			t.Errorf("docs/queue.md names %s, which does not exist", name[1])
		}
	}
}
