// Package samples reads the Go of Markdown documents and completes it, so that tests can
// compile and run what readers copy.
//
// A block that begins with a package clause is a file as it stands. Every other block is a
// fragment: declarations, or the statements of a function that returns an error. A fragment
// is completed with the imports of the packages that it names, and with these variables:
//
//	ctx    context.Context
//	etcd   *clientv3.Client
//	claims *etcdclaims.Client
//	logger *zap.Logger
//
// Further ones stand in a comment on the line above the block, which no reader sees:
//
//	<!-- given: picture []byte; scale func(context.Context, []byte) error -->
package samples

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/etcdclaims/claims"

const (
	start = "```go\n"
	end   = "```\n"
	given = "ctx context.Context; etcd *clientv3.Client; claims *etcdclaims.Client; logger *zap.Logger"
)

// imports are the packages that a fragment may name.
var imports = map[string]string{
	"backoff": "google.golang.org/grpc/backoff", "calendar": module + "/sched/calendar",
	"clientv3": "go.etcd.io/etcd/client/v3", "context": "context",
	"claimtest": module + "/etcdclaims/claimtest", "errors": "errors", "etcdclaims": module + "/etcdclaims",
	"etcdguard": module + "/fencing/etcdguard", "fencing": module + "/fencing", "fmt": "fmt",
	"group": module + "/etcdclaims/group", "grpc": "google.golang.org/grpc", "http": "net/http",
	"ical": module + "/sched/ical", "io": "io", "json": "encoding/json", "log": "log",
	"middleware": module + "/middleware", "os": "os", "queue": module + "/etcdclaims/queue", "work": module + "/etcdclaims/work",
	"sched": module + "/sched", "sql": "database/sql", "sqlguard": module + "/fencing/sqlguard",
	"strings": "strings", "synctest": "testing/synctest", "telemetry": module + "/etcdclaims/telemetry",
	"testing": "testing", "time": "time", "tls": "crypto/tls", "url": "net/url",
	"webui": module + "/etcdclaims/webui", "zap": "go.uber.org/zap",
}

// A Block is Go in a document.
type Block struct {
	Document string
	Line     int // of its first line of code
	Code     string
	given    string
}

// Read returns the blocks of a document in their order.
func Read(document string) ([]Block, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	var all []Block
	var above string
	var open *Block
	line := 0
	for l := range strings.Lines(string(text)) {
		line++
		switch {
		case open != nil && l == end:
			all, open = append(all, *open), nil
		case open != nil:
			open.Code += l
		case l == start:
			open = &Block{Document: document, Line: line + 1}
			if g, ok := strings.CutPrefix(above, "<!-- given: "); ok {
				open.given = strings.TrimSuffix(strings.TrimSpace(g), "-->")
			}
		}
		above = l
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block is not closed", document, open.Line)
	}
	return all, nil
}

// IsFile reports whether the block is a whole file.
func (b Block) IsFile() bool { return strings.HasPrefix(b.Code, "package ") }

// IsProgram reports whether the block is a whole program.
func (b Block) IsProgram() bool { return strings.HasPrefix(b.Code, "package main\n") }

// Source returns the block as a file that is ready to compile.
func (b Block) Source() ([]byte, error) {
	if b.IsFile() {
		formatted, err := format.Source([]byte(b.Code))
		if err == nil && string(formatted) != b.Code {
			err = errors.New("gofmt would change it")
		}
		return formatted, b.locate(err)
	}
	body := b.Code // declarations
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package sample\n"+body, parser.SkipObjectResolution); err != nil {
		body = "func sample() error {\n" + body + "return nil\n}\n"
	}
	var variables strings.Builder
	for _, text := range []string{given, b.given} {
		for v := range strings.SplitSeq(text, ";") {
			if v = strings.TrimSpace(v); v != "" {
				fmt.Fprintf(&variables, "var %s\n", v)
			}
		}
	}
	tail := variables.String() + body
	syntax, err := parser.ParseFile(token.NewFileSet(), "", "package sample\n"+tail, parser.SkipObjectResolution)
	if err != nil {
		return nil, b.locate(err)
	}
	var source bytes.Buffer
	fmt.Fprintln(&source, "package sample")
	for _, name := range packages(syntax) {
		fmt.Fprintf(&source, "import %s %q\n", name, imports[name])
	}
	source.WriteString(tail)
	return source.Bytes(), nil
}

func (b Block) locate(err error) error {
	if err != nil {
		return fmt.Errorf("%s:%d: %w", b.Document, b.Line, err)
	}
	return nil
}

// packages returns the names before a dot that are names of packages.
func packages(syntax *ast.File) []string {
	found := map[string]bool{}
	ast.Inspect(syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && imports[x.Name] != "" {
				found[x.Name] = true
			}
		}
		return true
	})
	return slices.Sorted(maps.Keys(found))
}

// Write makes dir a module of the blocks, each a package in a directory of its own, which uses
// the tree at root in place of a release. It returns the directories.
func Write(dir, root string, blocks []Block) ([]string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := writeModule(dir, root); err != nil {
		return nil, err
	}
	var all []string
	for _, b := range blocks {
		source, err := b.Source()
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(b.Document), ".md")
		pkg := filepath.Join(dir, fmt.Sprint(name, "_line", b.Line))
		file := "sample.go"
		if clause, _, _ := strings.Cut(b.Code, "\n"); b.IsFile() && strings.HasSuffix(clause, "_test") {
			file = "sample_test.go"
		}
		if err := os.Mkdir(pkg, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(pkg, file), source, 0o600); err != nil {
			return nil, err
		}
		all = append(all, pkg)
	}
	return all, nil
}

// writeModule gives the module the requirements of the tree at root, so that nothing is
// downloaded.
func writeModule(dir, root string) error {
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	text := strings.Replace(string(gomod), "module "+module, "module samples", 1)
	text += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, root)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600)
}
