package claims_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A checked is the non-test code of one package of this module, for this platform, after
// the type check. Rules that look at names alone could not know whose method a name is.
type checked struct {
	path  string // as of a pkg
	types *types.Package
	files *token.FileSet
	uses  map[*ast.Ident]types.Object
}

// file returns the file that has pos.
func (c checked) file(pos token.Pos) string { return filepath.Base(c.files.File(pos).Name()) }

// checkedPackages returns all packages of the module that have code. Each is checked once.
func checkedPackages(t *testing.T) []checked {
	t.Helper()
	all, err := checkModule()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 2 {
		t.Fatalf("found %d packages: this test reads the wrong directory", len(all))
	}
	return all
}

// checkModule reads what a package imports as the compiler has exported it, so that no
// package is checked for another.
var checkModule = sync.OnceValues(func() ([]checked, error) {
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	cmd := exec.CommandContext(context.Background(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	exported := map[string]string{}
	var own []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exported[p.ImportPath] = p.Export
		if ours(p.ImportPath) != p.ImportPath && len(p.GoFiles) > 0 {
			own = append(own, p)
		}
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exported[path]) })
	var all []checked
	for _, p := range own {
		sources := map[string]any{}
		for _, name := range p.GoFiles {
			sources[filepath.Join(p.Dir, name)] = nil // from the disk
		}
		c, err := check(p.ImportPath, files, imports, sources)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
})

// check checks one package. A source is what parser.ParseFile takes.
func check(importPath string, files *token.FileSet, imports types.Importer, sources map[string]any) (checked, error) {
	var trees []*ast.File
	for name, source := range sources {
		tree, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return checked{}, err
		}
		trees = append(trees, tree)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	p, err := (&types.Config{Importer: imports}).Check(importPath, files, trees, info)
	return checked{ours(importPath), p, files, info.Uses}, err
}

// exampleSources are packages that the tests of the rules check.
type exampleSources map[string]map[string]any // by import path and file

// Import checks an example that another one imports.
func (s exampleSources) Import(importPath string) (*types.Package, error) {
	c, err := check(importPath, token.NewFileSet(), s, s[importPath])
	return c.types, err
}

// check checks the example at a path that starts with "./".
func (s exampleSources) check(t *testing.T, path string) checked {
	t.Helper()
	importPath := strings.Replace(path, ".", module, 1)
	c, err := check(importPath, token.NewFileSet(), s, s[importPath])
	if err != nil {
		t.Fatal(err)
	}
	return c
}
