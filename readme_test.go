package claims_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/samples"
)

// Readers copy the samples of the documents: each compiles, as a file or completed as
// package samples says. examples_test runs the programs among them.
func TestDocumentedGoCompiles(t *testing.T) {
	t.Parallel()
	blocks := documentedGo(t)
	if len(blocks) < 8 {
		t.Errorf("found %d blocks of Go only", len(blocks))
	}
	dir := t.TempDir()
	if _, err := samples.Write(dir, ".", blocks); err != nil {
		t.Fatal(err)
	}
	// A fragment that returns is completed with a return, which nothing reaches.
	vet := exec.CommandContext(t.Context(), "go", "vet", "-mod=mod", "-unreachable=false", "./...")
	vet.Dir = dir
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("go vet: %v\n%s", err, out)
	}
}

// The test in docs/testing.md is one that runs.
func TestDocumentedTestRuns(t *testing.T) {
	t.Parallel()
	blocks, err := samples.Read("docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("etcdclaims/claimtestdocument_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(file), "\n")
	if _, got, _ := strings.Cut(blocks[0].Code, "\n"); got != want {
		t.Error("docs/testing.md and etcdclaims/claimtestdocument_test.go differ by more than their packages")
	}
}

// The README is read in five minutes. Only rows of tables and links are longer than a line.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(readme), "\n"), "\n")
	if len(lines) > 155 {
		t.Errorf("it has %d lines", len(lines))
	}
	for i, line := range lines {
		if len(line) > 120 && !strings.HasPrefix(line, "|") && !strings.Contains(line, "](") {
			t.Errorf("line %d has %d columns", i+1, len(line))
		}
	}
}

// What a sample makes it closes: readers copy that, too.
func TestSamplesClose(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, block := range documentedGo(t) {
		texts[fmt.Sprintf("%s:%d", block.Document, block.Line)] = block.Code
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "doc.go" {
			var text []byte
			text, err = os.ReadFile(path)
			texts[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	makes := regexp.MustCompile(`(\w+), err :?= (?:clientv3|etcdclaims|queue|webui|group)\.(?:New|Open|Join)\(`)
	found := 0
	for where, text := range texts {
		for _, made := range makes.FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(text, made[1]+".Close(") && !strings.Contains(text, made[1]+".Leave(") {
				t.Errorf("%s does not close %s", where, made[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d only", found)
	}
}

// documentedGo returns the Go of all documents for users.
func documentedGo(t *testing.T) (blocks []samples.Block) {
	t.Helper()
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range append(documents, "README.md") {
		found, err := samples.Read(document)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, found...)
	}
	return blocks
}
