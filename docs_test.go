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

// A document names tests as evidence. In the table "Cases of others" the second column
// names tests of other projects.
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
		others := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "## ") {
				others = line == "## Cases of others\n"
			}
			if columns := strings.Split(line, "|"); others && len(columns) > 3 {
				line = columns[3]
			}
			for _, match := range name.FindAllStringSubmatch(line, -1) {
				found++
				if !tests[match[1]] {
					t.Errorf("%s: there is no %s", path, match[1])
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("found %d names of tests only", found)
	}
}
