package etcdclaims_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testetcd/covered"
)

// mostFilesOfAFreeKey only falls: whoever shortens the path lowers it here.
const mostFilesOfAFreeKey = 44

// coreOfAFreeKey are the packages whose files count. What they all use, such as clocks and
// the names of keys, does not.
var coreOfAFreeKey = []string{
	"etcdclaims", "internal/acquire", "internal/beside", "internal/lease", "internal/line", "internal/localline", "internal/protocol",
	"internal/registry", "internal/store", "internal/suspicion", "internal/term", "internal/txn", "internal/watch",
}

// modesOnFreeKeys are the files of other modes that a plain claim runs all the same, sorted.
// The list only shrinks.
var modesOnFreeKeys []string

// The simplest call is the first that a reader follows. This test runs it, and lists the
// files and functions that it has run.
func TestAFreeKeyCrossesFewFiles(t *testing.T) {
	testetcd.SkipUnlessLong(t, "builds a program with coverage")
	t.Parallel()
	const acquisitions = 5
	program := covered.Build(t, "./testdata/freekeys", "...")
	args := []string{testetcd.Shared(t).Endpoints()[0], testetcd.Prefix(t)}
	for range acquisitions {
		args = append(args, t.TempDir())
	}
	covered.Run(t, program, args...)

	times := map[covered.Block]int{}
	for _, dir := range args[2:] {
		for b := range covered.Blocks(t, dir) {
			times[b]++
		}
	}
	functions := map[string][]string{}
	for b, n := range times {
		if n > acquisitions/2 { // the background may run at the same time once
			functions[b.File] = append(functions[b.File], functionAt(t, b))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(functions)) {
		slices.Sort(functions[file])
		t.Logf("%s: %s", file, strings.Join(slices.Compact(functions[file]), ", "))
	}
	files := slices.Sorted(maps.Keys(functions))
	if !slices.Contains(files, "etcdclaims/acquire.go") || !slices.Contains(files, "internal/protocol/take.go") {
		t.Fatalf("the trace does not show the acquisition: %q", files)
	}
	for _, fault := range pathFaults(files, mostFilesOfAFreeKey, modesOnFreeKeys) {
		t.Error(fault)
	}
}

// pathFaults returns what is wrong with the files that an acquisition crosses: at most so many
// of the core, and none of a mode but those that are known.
func pathFaults(files []string, most int, known []string) []string {
	var faults, core, modes []string
	for _, file := range files {
		if slices.Contains(coreOfAFreeKey, path.Dir(file)) {
			core = append(core, file)
		}
		if isOfMode(file) {
			modes = append(modes, file)
		}
	}
	if len(core) > most {
		faults = append(faults, fmt.Sprintf("%d files of the core, %d may be: %q", len(core), most, core))
	}
	if slices.Sort(modes); !slices.Equal(modes, known) {
		faults = append(faults, fmt.Sprintf("it runs files of other modes: %q, known are %q", modes, known))
	}
	return faults
}

// isOfMode reports whether a file is about slots, shared claims, preferred callers, suspicion,
// or callers that wait within their client.
func isOfMode(file string) bool {
	return slices.Contains([]string{"internal/localline", "internal/suspicion"}, path.Dir(file)) ||
		slices.ContainsFunc([]string{"slot", "share", "prefer", "suspect", "suspicion"}, func(word string) bool {
			return strings.HasPrefix(path.Base(file), word)
		})
}

func TestPathFaults(t *testing.T) {
	f := func(files, known []string, want int) {
		t.Helper()
		if got := pathFaults(files, 2, known); len(got) != want {
			t.Errorf("%q, known %q: got %q, want %d faults", files, known, got, want)
		}
	}
	f([]string{"etcdclaims/acquire.go", "internal/txn/batch.go", "internal/clock/clock.go"}, nil, 0)
	f([]string{"etcdclaims/acquire.go", "internal/txn/batch.go", "internal/lease/session.go"}, nil, 1)
	f([]string{"etcdclaims/acquire.go", "internal/txn/batch.go", "etcdclaims/slots.go"}, nil, 2)
	for _, file := range []string{
		"etcdclaims/slots.go", "internal/protocol/slots.go", "etcdclaims/shared.go", "internal/term/prefer.go",
		"etcdclaims/suspect.go", "internal/suspicion/answers.go", "internal/localline/line.go",
	} {
		f([]string{file}, nil, 1)
		f([]string{file}, []string{file}, 0)
		f(nil, []string{file}, 1)
	}
}

// functionAt returns the name of the function that a block is part of.
func functionAt(t *testing.T, b covered.Block) string {
	t.Helper()
	positions := token.NewFileSet()
	syntax, err := parser.ParseFile(positions, filepath.Join("..", filepath.FromSlash(b.File)), nil, parser.SkipObjectResolution)
	noErr(t, err)
	for _, decl := range syntax.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || b.Line < positions.Position(fn.Pos()).Line || positions.Position(fn.End()).Line < b.Line {
			continue
		}
		if fn.Recv == nil {
			return fn.Name.Name
		}
		return strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*") + "." + fn.Name.Name
	}
	return fmt.Sprintf("line %d", b.Line)
}
