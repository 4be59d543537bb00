package claims_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

// The type of a problem is an address: what it names must be there, for each reason
// with which any package refuses.
func TestProblemTypesAreDocumented(t *testing.T) {
	t.Parallel()
	const published = "https://github.com/etcdclaims/claims/blob/main/"
	reasons := map[string]string{} // and where they are
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.CompositeLit); ok {
				if reason, ok := reasonOf(lit); ok {
					reasons[reason] = path
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(reasons) < 16 {
		t.Fatalf("found %d reasons only: %v", len(reasons), reasons)
	}
	for reason, where := range reasons {
		address, isPublished := strings.CutPrefix(fencing.Refusal{Reason: reason}.Type(), published)
		file, anchor, ok := strings.Cut(address, "#")
		text, err := os.ReadFile(file)
		if !isPublished || !ok || err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		if n := strings.Count(string(text), `<a id="`+anchor+`">`); n != 1 {
			t.Errorf("%s, of %s: %s has it %d times", reason, where, file, n)
		}
	}
}

// reasonOf returns the reason in a literal of a fencing.Refusal.
func reasonOf(lit *ast.CompositeLit) (string, bool) {
	name := ""
	switch typ := lit.Type.(type) {
	case *ast.SelectorExpr:
		name = typ.Sel.Name
	case *ast.Ident:
		name = typ.Name
	}
	if name != "Refusal" || len(lit.Elts) == 0 {
		return "", false
	}
	value := lit.Elts[0]
	if pair, ok := value.(*ast.KeyValueExpr); ok {
		value = pair.Value
	}
	basic, ok := value.(*ast.BasicLit)
	if !ok {
		return "", false
	}
	reason, err := strconv.Unquote(basic.Value)
	return reason, err == nil && strings.ToUpper(reason) == reason && reason != ""
}
