// Package claims_test pins the shape of the module: which package may import
// which, and the house rules that no compiler checks. The root has no code of
// its own.
package claims_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

const (
	module   = "github.com/etcdclaims/claims"
	maxLines = 400 // of a file
	maxFunc  = 80  // lines of a function
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An importRule says what the non-test code of some packages may import.
//
// Packages are written as patterns. "./fencing" is our own package, "std" the
// whole standard library, anything else an import path; "/..." at the end takes
// in what is below.
type importRule struct {
	why    string
	in     []string // the packages that the rule is about; empty: all
	except []string // but not these
	direct bool     // look at import statements only; otherwise at all that gets linked
	only   []string // if set, nothing but this may be imported
	never  []string // this may not
}

var importRules = []importRule{
	{
		why:  "a resource server that gates links nothing but the standard library",
		in:   []string{"./fencing"},
		only: []string{"std", "./internal/structured"},
	},
	{
		why:  "what such a server and middleware share with others links nothing else either",
		in:   []string{"./internal/structured", "./internal/option"},
		only: []string{"std"},
	},
	{
		why:  "the gates for SQL and object stores and the conformance suite need no driver and no etcd",
		in:   []string{"./fencing/objectguard", "./fencing/fencetest"},
		only: []string{"std", "./fencing", "./internal/structured"},
	},
	{
		why:  "nor does the gate for SQL, which must know what fences are made of to prune",
		in:   []string{"./fencing/sqlguard"},
		only: []string{"std", "./fencing", "./internal/structured", "./internal/keyspace"},
	},
	{
		why:  "nor does the conformance suite for object stores",
		in:   []string{"./fencing/objectguard/storetest"},
		only: []string{"std", "./fencing", "./internal/structured", "./fencing/objectguard", "./fencing/fencetest"},
	},
	{
		why:   "fencing is the vocabulary that all others share",
		in:    []string{"./fencing/..."},
		never: []string{"./etcdclaims/...", "./middleware/...", "./sched/...", "./examples/..."},
	},
	{
		why:   "claims are the simple thing; queues, schedules and helpers for tests are built on them",
		in:    []string{"./etcdclaims"},
		never: []string{"./etcdclaims/queue/...", "./etcdclaims/group/...", "./etcdclaims/locks/...", "./etcdclaims/concurrency/...", "./etcdclaims/admin/...", "./etcdclaims/claimtest/...", "./sched/...", "./middleware/...", "./examples/..."},
	},
	{
		why:    "what decides is pure: no I/O, no clock, no mutex, no logger, no context",
		in:     []string{"./internal/protocol", "./internal/explore/etcdmodel"},
		direct: true,
		never:  []string{"context", "sync/...", "time", "net/...", "os/...", "io/...", "log/...", "go.uber.org/...", "google.golang.org/...", "go.etcd.io/etcd/client/...", "./etcdclaims/..."},
	},
	{
		why:    "so is what decides about items and about records of work, whose values have instants that others read from a clock",
		in:     []string{"./internal/item", "./internal/record"},
		direct: true,
		never:  []string{"context", "sync/...", "net/...", "os/...", "io/...", "log/...", "math/rand/...", "github.com/google/...", "go.uber.org/...", "google.golang.org/...", "go.etcd.io/etcd/client/...", "./internal/clock", "./etcdclaims/..."},
	},
	{
		why:    "nor has what decides about ticks, which are times",
		in:     []string{"./internal/tick"},
		direct: true,
		only: []string{
			"bytes", "cmp", "crypto/sha256", "encoding/...", "errors", "fmt", "maps", "math/...", "slices", "strconv",
			"strings", "time", "go.etcd.io/etcd/api/...", "./internal/keyspace", "./internal/pausing",
			"./internal/txn", "./sched/calendar",
		},
	},
	{
		why:    "nor has what explains the state of a job",
		in:     []string{"./internal/jobstate"},
		direct: true,
		only:   []string{"bytes", "cmp", "crypto/sha256", "encoding/...", "errors", "fmt", "maps", "math/...", "slices", "strconv", "strings", "time", "go.etcd.io/etcd/api/...", "./internal/tick", "./internal/txn", "./sched/calendar"},
	},
	{
		why:   "what claims are made of knows nothing of them",
		in:    []string{"./internal/outage", "./internal/ownwait", "./internal/watch", "./internal/localline", "./internal/store", "./internal/registry", "./internal/lease", "./internal/term", "./internal/acquire", "./internal/line", "./internal/life", "./internal/claimerr", "./internal/live", "./internal/oplog", "./internal/priority", "./internal/lanes", "./internal/jobstate"},
		never: []string{"./etcdclaims/..."},
	},
	{
		why:   "a lease is renewed and verified whatever hangs on it",
		in:    []string{"./internal/lease"},
		never: []string{"./internal/term", "./internal/acquire", "./internal/line"},
	},
	{
		why:   "a claim that is held knows nothing of those that wait",
		in:    []string{"./internal/term"},
		never: []string{"./internal/acquire", "./internal/line"},
	},
	{
		why:   "an attempt does not know how others wait",
		in:    []string{"./internal/acquire"},
		never: []string{"./internal/line"},
	},
	{
		why:    "what a client does for the packages that are built on it is no API: programs, middleware and the page use the public one",
		in:     []string{"./middleware/...", "./fencing/...", "./cmd/...", "./examples/...", "./etcdclaims/webui", "./etcdclaims/telemetry/...", "./etcdclaims/claimtest/...", "./internal/doctor", "./internal/explain"},
		direct: true,
		never:  []string{"./internal/core"},
	},
	{
		why:   "queues, groups and schedules stand side by side on claims",
		in:    []string{"./etcdclaims/queue/...", "./etcdclaims/group/...", "./sched/..."},
		never: []string{"./etcdclaims/claimtest/...", "./middleware/...", "./examples/..."},
	},
	{
		why:   "queues know nothing of schedules and groups",
		in:    []string{"./etcdclaims/queue/..."},
		never: []string{"./sched/...", "./etcdclaims/group/..."},
	},
	{
		why:   "groups know nothing of schedules and queues",
		in:    []string{"./etcdclaims/group/..."},
		never: []string{"./sched/...", "./etcdclaims/queue/..."},
	},
	{
		why:   "schedules know nothing of queues and groups",
		in:    []string{"./sched/..."},
		never: []string{"./etcdclaims/queue/...", "./etcdclaims/group/..."},
	},
	{
		why:   "work is built on claims, and claims know nothing of it",
		in:    []string{"./etcdclaims", "./etcdclaims/queue", "./etcdclaims/group", "./sched", "./internal/beside"},
		never: []string{"./etcdclaims/work"},
	},
	{
		why:   "leases of what outlives its owner know neither claims nor work",
		in:    []string{"./internal/retention"},
		never: []string{"./etcdclaims/..."},
	},
	{
		why:    "the page needs nothing but the standard library and this SDK",
		in:     []string{"./etcdclaims/webui"},
		direct: true,
		only: []string{
			"std", "./etcdclaims", "./etcdclaims/admin", "./etcdclaims/work", "./etcdclaims/queue",
			"./etcdclaims/group", "./sched", "./sched/calendar", "./fencing", "./internal/attach",
			"./internal/doctor", "./internal/explain", "./internal/pausing", "go.uber.org/zap",
		},
	},
	{
		why:    "the page is for the programs that mount it",
		except: []string{"./etcdclaims/webui", "./cmd/...", "./examples/..."},
		never:  []string{"./etcdclaims/webui"},
	},
	{
		why:  "whoever uses another scheduler takes the calendar without etcd",
		in:   []string{"./sched/calendar"},
		only: []string{"std"},
	},
	{
		why:  "iCalendar files are read without etcd",
		in:   []string{"./sched/ical"},
		only: []string{"std", "./sched/calendar", "github.com/emersion/go-ical", "github.com/teambition/rrule-go"},
	},
	{
		why:    "the libraries for iCalendar are chosen by importing sched/ical",
		except: []string{"./sched/ical", "./cmd/...", "./examples/..."},
		never:  []string{"./sched/ical", "github.com/emersion/...", "github.com/teambition/..."},
	},
	{
		why:   "middleware takes a small interface for the claimer: a server that uses it does not link etcd",
		in:    []string{"./middleware/..."},
		never: []string{"./etcdclaims/...", "./sched/...", "./fencing/etcdguard/...", "./examples/...", "go.etcd.io/..."},
	},
	{
		why:    "users do not link the etcd server",
		except: []string{"./internal/testetcd/...", "./internal/testclaims", "./internal/campaign/...", "./internal/simulation/...", "./etcdclaims/claimtest/...", "./examples/...", "./cmd/claimctl-dev"},
		never:  []string{"go.etcd.io/etcd/server/...", "./internal/testetcd/..."},
	},
	{
		why:    "the libraries for command lines and YAML are linked by claimctl alone, and by the etcd server",
		except: []string{"./cmd/...", "./internal/testetcd/...", "./internal/testclaims", "./internal/campaign/...", "./internal/simulation/...", "./etcdclaims/claimtest/...", "./examples/..."},
		never:  []string{"github.com/spf13/...", "go.yaml.in/..."},
	},
	{
		why:  "the bridge to log/slog knows two loggers and nothing else",
		in:   []string{"./etcdclaims/zaplog"},
		only: []string{"std", "go.uber.org/zap/...", "go.uber.org/multierr"},
	},
	{
		why:    "the bridge to log/slog is chosen by its import",
		except: []string{"./etcdclaims/zaplog", "./cmd/...", "./examples/..."},
		never:  []string{"./etcdclaims/zaplog"},
	},
	{
		why:    "telemetry is chosen by its import: nothing else, and so no user who does not want it, links OpenTelemetry",
		except: []string{"./etcdclaims/telemetry/...", "./cmd/claimctl-dev/...", "./internal/testetcd/...", "./internal/testclaims", "./internal/campaign/...", "./internal/simulation/...", "./etcdclaims/claimtest/...", "./examples/..."},
		never:  []string{"go.opentelemetry.io/...", "./etcdclaims/telemetry/..."},
	},
	{
		why:   "telemetry uses the API of OpenTelemetry; the SDK and the exporters are for the program to choose",
		in:    []string{"./etcdclaims/telemetry/..."},
		never: []string{"go.opentelemetry.io/otel/sdk/...", "go.opentelemetry.io/otel/exporters/...", "github.com/prometheus/...", "./middleware/...", "./etcdclaims/claimtest/..."},
	},
	{
		why:    "commands are for people; programs use the packages",
		except: []string{"./cmd/..."},
		never:  []string{"./cmd/..."},
	},
	{
		why:   "histories can be checked without linking the etcd server",
		in:    []string{"./internal/history"},
		never: []string{"go.etcd.io/etcd/server/...", "./internal/testetcd/..."},
	},
	{
		why:    "code that is not a test does not import test machinery",
		except: []string{"./internal/testetcd/...", "./internal/testclaims", "./internal/history", "./internal/simulation/...", "./etcdclaims/claimtest/...", "./fencing/fencetest/...", "./fencing/objectguard/storetest/..."},
		direct: true,
		never:  []string{"testing/...", "net/http/httptest"},
	},
	{
		why:    "goroutine leaks are looked for in tests only",
		except: []string{"./internal/testetcd/...", "./etcdclaims/claimtest/..."},
		direct: true,
		never:  []string{"go.uber.org/goleak"},
	},
}

// The house rules. Each takes one package and returns what is wrong with it.
var houseRules = map[string]func(pkg) []string{
	"place":       checkPlace,
	"name":        checkName,
	"package doc": checkDoc,
	"size":        checkSize,
	"function":    checkFunctions,
	"leaks":       checkLeaks,
}

func TestImports(t *testing.T) {
	pkgs := load(t)
	for _, rule := range importRules {
		t.Run(rule.why, func(t *testing.T) {
			for _, p := range pkgs {
				// All of them would be hundreds: the server brings its own.
				if deps := rule.violations(p); len(deps) > 0 {
					t.Errorf("%s imports %s, and %d more that it may not", p.path, deps[0], len(deps)-1)
				}
			}
		})
	}
}

func TestHouseRules(t *testing.T) {
	pkgs := load(t)
	for name, check := range houseRules {
		t.Run(name, func(t *testing.T) {
			for _, p := range pkgs {
				for _, fault := range check(p) {
					t.Errorf("%s: %s", p.path, fault)
				}
			}
		})
	}
}

// A pkg is what the rules need to know of one directory with Go files.
type pkg struct {
	path  string // "./fencing"; "." is the root
	files []file // for every platform, tests included
	deps  []string
}

// A file is one Go file. Imports and deps are written as patterns are: our own
// packages start with "./".
type file struct {
	name    string
	pkg     string
	test    bool
	doc     bool // has a package doc comment
	leaks   bool // has a TestMain that looks for leaked goroutines
	lines   int
	longest function
	imports []string
}

// A function is a function's or method's name and how many lines it has, from its
// declaration to its closing brace.
type function struct {
	name  string
	lines int
}

func (p pkg) sources() []file { return filter(p.files, func(f file) bool { return !f.test }) }
func (p pkg) tests() []file   { return filter(p.files, func(f file) bool { return f.test }) }

func (r importRule) violations(p pkg) []string {
	if len(r.in) > 0 && !matchAny(r.in, p.path) || matchAny(r.except, p.path) {
		return nil
	}
	var imports []string
	for _, f := range p.sources() {
		imports = append(imports, f.imports...) // also those of other platforms
	}
	if !r.direct {
		imports = append(imports, p.deps...)
	}
	var found []string // what is imported directly comes first
	for _, dep := range imports {
		refused := matchAny(r.never, dep) || len(r.only) > 0 && !matchAny(r.only, dep)
		if refused && !slices.Contains(found, dep) {
			found = append(found, dep)
		}
	}
	return found
}

func checkPlace(p pkg) []string {
	allowed := []string{"./etcdclaims/...", "./fencing/...", "./middleware/...", "./sched/...", "./internal/...", "./examples/...", "./cmd/..."}
	switch {
	case p.path == "." && len(p.sources()) > 0:
		return []string{"the root holds no code, only tests"}
	case p.path != "." && !matchAny(allowed, p.path):
		return []string{"not below cmd, etcdclaims, fencing, middleware, sched, internal or examples"}
	}
	return nil
}

// checkName refuses names that say nothing about what is inside.
func checkName(p pkg) []string {
	var faults []string
	for _, word := range []string{"util", "helper", "common", "manager"} {
		if strings.Contains(path.Base(p.path), word) || slices.ContainsFunc(p.files, func(f file) bool {
			return strings.Contains(f.pkg, word)
		}) {
			faults = append(faults, fmt.Sprintf("%q in the name does not say what it is for", word))
		}
	}
	return faults
}

func checkDoc(p pkg) []string {
	docs := filter(p.sources(), func(f file) bool { return f.doc })
	if len(p.sources()) > 0 && len(docs) != 1 {
		return []string{fmt.Sprintf("%d package doc comments %v, want exactly one", len(docs), names(docs))}
	}
	return nil
}

func checkSize(p pkg) []string {
	var faults []string
	for _, f := range p.sources() {
		if f.lines > maxLines {
			faults = append(faults, fmt.Sprintf("%s has %d lines, more than %d: split it by noun", f.name, f.lines, maxLines))
		}
	}
	return faults
}

func checkFunctions(p pkg) []string {
	var faults []string
	for _, f := range p.sources() {
		if f.longest.lines > maxFunc {
			faults = append(faults, fmt.Sprintf("%s in %s has %d lines, more than %d: split it by what its parts decide", f.longest.name, f.name, f.longest.lines, maxFunc))
		}
	}
	return faults
}

func checkLeaks(p pkg) []string {
	if len(p.tests()) > 0 && !slices.ContainsFunc(p.tests(), func(f file) bool { return f.leaks }) {
		return []string{"has tests, but no TestMain that calls testetcd.Main or goleak.VerifyTestMain"}
	}
	return nil
}

func matchAny(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return match(pattern, importPath) })
}

func match(pattern, importPath string) bool {
	if pattern == "std" {
		first, _, _ := strings.Cut(importPath, "/")
		return !strings.Contains(first, ".") // ours start with "./", others with a host name
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return importPath == tree || strings.HasPrefix(importPath, tree+"/")
	}
	return importPath == pattern
}

// load reads the module twice. The tree tells of every file, whatever its build
// tags; reading it in this process also lets go test know when a cached result
// is stale. The go command tells what gets linked.
func load(t *testing.T) []pkg {
	t.Helper()
	deps := loadDeps(t)
	byDir := map[string]*pkg{}
	var dirs []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(name)
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		f, err := parse(name)
		if err != nil {
			return err
		}
		dir := filepath.Dir(name)
		p := byDir[dir]
		if p == nil {
			p = &pkg{path: ours(path.Join(module, filepath.ToSlash(dir)))}
			p.deps = deps[p.path]
			byDir[dir], dirs = p, append(dirs, dir)
		}
		p.files = append(p.files, f)
		return nil
	})
	if err != nil {
		t.Fatalf("read the tree: %v", err)
	}
	pkgs := make([]pkg, 0, len(dirs))
	for _, dir := range dirs {
		pkgs = append(pkgs, *byDir[dir])
	}
	if len(pkgs) < 2 {
		t.Fatalf("found %d packages: this test reads the wrong directory", len(pkgs))
	}
	return pkgs
}

// skip leaves out what the go command leaves out of "./...".
func skip(dir string) error {
	if dir == "." {
		return nil
	}
	base := filepath.Base(dir)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

func parse(name string) (file, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	return parseSource(filepath.Base(name), src)
}

func parseSource(name string, src []byte) (file, error) {
	positions := token.NewFileSet()
	tree, err := parser.ParseFile(positions, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return file{}, err
	}
	f := file{
		name:  name,
		pkg:   tree.Name.Name,
		test:  strings.HasSuffix(name, "_test.go"),
		doc:   strings.TrimSpace(tree.Doc.Text()) != "",
		leaks: slices.ContainsFunc(tree.Decls, looksForLeaks),
		lines: bytes.Count(src, []byte("\n")),
	}
	for _, decl := range tree.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && !f.test {
			lines := positions.Position(fn.End()).Line - positions.Position(fn.Pos()).Line + 1
			if lines > f.longest.lines {
				f.longest = function{fn.Name.Name, lines}
			}
		}
	}
	for _, spec := range tree.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, ours(importPath))
	}
	return f, nil
}

// looksForLeaks says whether decl is a TestMain that calls testetcd.Main or
// goleak.VerifyTestMain.
func looksForLeaks(decl ast.Decl) bool {
	fn, ok := decl.(*ast.FuncDecl)
	if !ok || fn.Recv != nil || fn.Name.Name != "TestMain" {
		return false
	}
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := sel.X.(*ast.Ident)
		if ok {
			name := from.Name + "." + sel.Sel.Name
			found = found || name == "testetcd.Main" || name == "goleak.VerifyTestMain"
		}
		return true
	})
	return found
}

// loadDeps returns all that the non-test code of each package links.
func loadDeps(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Deps", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	deps := map[string][]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var listed struct {
			ImportPath string
			Deps       []string
		}
		err := dec.Decode(&listed)
		if errors.Is(err, io.EOF) {
			return deps
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for i, dep := range listed.Deps {
			listed.Deps[i] = ours(dep)
		}
		deps[ours(listed.ImportPath)] = listed.Deps
	}
}

// ours shortens the paths of this module: "./fencing", and "." for the root.
func ours(importPath string) string {
	if importPath == module {
		return "."
	}
	if rest, ok := strings.CutPrefix(importPath, module+"/"); ok {
		return "./" + rest
	}
	return importPath
}

func filter[T any](all []T, keep func(T) bool) []T {
	var kept []T
	for _, v := range all {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

func names(files []file) []string {
	var names []string
	for _, f := range files {
		names = append(names, f.name)
	}
	return names
}
