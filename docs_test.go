package claims_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A document names tests as evidence.
func TestDocumentedTestsExist(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	var documents []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case filepath.Ext(path) == ".md":
			documents = append(documents, path)
		case strings.HasSuffix(path, ".go"): // suites that others can run are in files of their own
			syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range syntax.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					tests[f.Name.Name] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`(?:[a-z]+\\.)?(Test[A-Z][A-Za-z0-9]*)[`(/]")
	found := 0
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range name.FindAllStringSubmatch(string(text), -1) {
			found++
			if !tests[match[1]] {
				t.Errorf("%s: there is no %s", path, match[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("found %d names of tests only", found)
	}
}

// Links between documents lead to files, and to headings or anchors, that exist.
func TestDocumentedLinks(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]map[string]bool{} // by document
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code := regexp.MustCompile("(?ms)^```.*?^```$")
	found := 0
	for _, document := range append(documents, "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(match[1], "://") {
				continue
			}
			found++
			path := document
			if target != "" {
				path = filepath.Join(filepath.Dir(document), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links %s: %v", document, match[1], err)
			} else if anchor != "" && !anchorsOf(t, anchors, path)[anchor] {
				t.Errorf("%s links %s: there is no such heading", document, match[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("found %d links only", found)
	}
}

// anchorsOf returns the anchors of a document, as GitHub makes them from headings, and those
// that stand in it.
func anchorsOf(t *testing.T, known map[string]map[string]bool, document string) map[string]bool {
	t.Helper()
	if known[document] != nil {
		return known[document]
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, heading := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(string(text), -1) {
		all[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-")] = true
	}
	for _, id := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(string(text), -1) {
		all[id[1]] = true
	}
	known[document] = all
	return all
}
