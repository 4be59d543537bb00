package claims_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Examples are copied. A client without a Logger hides what nobody else learns, such as
// that etcd cannot be reached.
func TestExamplesHaveLoggers(t *testing.T) {
	t.Parallel()
	found := 0
	for _, path := range exampleFiles(t) {
		positions := token.NewFileSet()
		syntax, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || !takesLogger(literal.Type, filepath.Dir(path)) {
				return true
			}
			found++
			for _, e := range literal.Elts {
				if field, ok := e.(*ast.KeyValueExpr); ok && field.Key.(*ast.Ident).Name == "Logger" {
					return true
				}
			}
			t.Errorf("%s: a configuration without a Logger", positions.Position(literal.Pos()))
			return true
		})
	}
	if found < 25 {
		t.Errorf("found %d configurations only", found)
	}
}

// takesLogger reports whether the type is the configuration of a client or, in a program,
// of what is built on one.
func takesLogger(typ ast.Expr, dir string) bool {
	sel, ok := typ.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Config" {
		return false
	}
	switch pkg, _ := sel.X.(*ast.Ident); pkg.Name {
	case "etcdclaims":
		return true
	case "sched", "queue", "group":
		return strings.HasPrefix(dir, "examples")
	}
	return false
}

// The output of an example shows what its reader wants to know. That there was no error is
// not part of it.
func TestExamplesPrintNoNil(t *testing.T) {
	t.Parallel()
	for _, path := range exampleFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "//") && strings.Contains(line, "<nil>") {
				t.Errorf("%s: the output %q", path, line)
			}
		}
	}
}

// Examples are copied, and no other module can import an internal package. The packages that
// start their etcd and their processes may.
func TestExamplesImportNothingInternal(t *testing.T) {
	t.Parallel()
	found := 0
	for _, path := range exampleFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if !strings.HasPrefix(dir, "examples/") || dir == "examples/demoetcd" || dir == "examples/demoproc" {
			continue
		}
		found++
		syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range syntax.Imports {
			if strings.Contains(spec.Path.Value, "/internal/") {
				t.Errorf("%s imports %s", path, spec.Path.Value)
			}
		}
	}
	if found < 12 {
		t.Errorf("found %d files only", found)
	}
}

// Each example, program and document that makes a client, a queue or a member shows how that ends.
func TestExamplesEndWhatTheyMake(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	docs = append(docs, "README.md", "etcdclaims/doc.go", "etcdclaims/queue/doc.go", "etcdclaims/group/doc.go", "sched/doc.go")
	found := 0
	for _, path := range append(exampleFiles(t), docs...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, made := range []string{"etcdclaims.New(", "queue.New(", "group.Join(", "sched.New(claims, sched.Config{Group"} {
			if !strings.Contains(string(text), made) {
				continue
			}
			found++
			if !strings.Contains(string(text), ".Close(") && !strings.Contains(string(text), ".Leave(") {
				t.Errorf("%s calls %s), and does not end what it returns", path, made)
			}
		}
	}
	if found < 25 {
		t.Errorf("found %d only", found)
	}
}

// exampleFiles returns the Examples of the published packages, and the programs.
func exampleFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && name == "internal":
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
		case strings.HasSuffix(name, "_test.go") == strings.HasPrefix(path, "examples"+string(filepath.Separator)):
		case strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "example_"):
		default:
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
