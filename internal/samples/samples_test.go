package samples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSource(t *testing.T) {
	t.Parallel()
	document := filepath.Join(t.TempDir(), "page.md")
	text := "# Title\n\n" +
		"<!-- given: size int; name string -->\n```go\nfmt.Println(ctx, size, name)\n```\n\n" +
		"```sh\ngo run .\n```\n" +
		"```go\nfunc f() time.Duration { return time.Second }\n```\n" +
		"```go\nreturn errors.New(\"x\")\n```\n" +
		"```go\npackage main\n\nfunc main() {}\n```\n"
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	blocks, err := Read(document)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		line  int
		parts []string // of its source
	}{
		{5, []string{`import fmt "fmt"`, "var size int\nvar name string\n", "func sample() error {\n", "return nil\n}"}},
		{12, []string{`import time "time"`, "\nfunc f() time.Duration"}},
		{15, []string{`import errors "errors"`, "\nreturn errors.New(\"x\")\nreturn nil\n}"}},
		{18, []string{"package main\n\nfunc main() {}\n"}},
	}
	if len(blocks) != len(want) {
		t.Fatalf("found %d blocks", len(blocks))
	}
	for i, w := range want {
		source, err := blocks[i].Source()
		if err != nil || blocks[i].Line != w.line {
			t.Errorf("block %d: line %d, want %d; %v", i, blocks[i].Line, w.line, err)
		}
		for _, part := range w.parts {
			if !strings.Contains(string(source), part) {
				t.Errorf("block %d lacks %q:\n%s", i, part, source)
			}
		}
	}
}

// What is no Go is an error that says where it stands, and so is a block without an end.
func TestNotGo(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"```go\nQueue: q,\n```\n":                     "page.md:2:",
		"```go\nq, err := queue.New(...)\n...\n```\n": "page.md:2:",
		"```go\npackage main\nfunc main () {}\n```\n": "page.md:2: gofmt would change it",
		"\n```go\nx := 1\n":                           "page.md:3: the block is not closed",
	} {
		document := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(document, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		blocks, err := Read(document)
		if err == nil {
			_, err = blocks[0].Source()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", code, err, want)
		}
	}
}
