package claims_test

import (
	"errors"
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
	if found < 20 {
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
	if found < 60 {
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

// Each command of the documents that measures or tests something finds what it names.
func TestDocumentedCommandsFind(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?:cd (\S+) && )?go (?:-C (\S+) )?(?:test|run) (\./\S+)?[^` + "`\n" + `]*`)
	wanted := regexp.MustCompile(`-(run|bench|only) '?\^?(?:\(([^)]*)\)|([\w|]+))`)
	found := 0
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range command.FindAllStringSubmatch(string(text), -1) {
			code := sourceOf(t, filepath.Join(match[1], match[2], match[3]))
			for _, flag := range wanted.FindAllStringSubmatch(match[0], -1) {
				format := map[string]string{"run": "func Test%s", "bench": "func Benchmark%s", "only": `name: "%s`}[flag[1]]
				for name := range strings.SplitSeq(flag[2]+flag[3], "|") {
					found++
					name = strings.TrimPrefix(name, "Test")
					if !strings.Contains(code, strings.ReplaceAll(format, "%s", name)) {
						t.Errorf("%s: %s finds no %s", document, match[0], name)
					}
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("found %d names only", found)
	}
}

// sourceOf returns the code of a package with its tests.
func sourceOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	return code.String()
}

// What the README says of costs is what the benchmarks have.
func TestFiguresAgree(t *testing.T) {
	t.Parallel()
	readme, err1 := os.ReadFile("README.md")
	benchmarks, err2 := os.ReadFile("docs/benchmarks.md")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ratio to Mutex \| ([\d.]+) \|.* ([\d.]+) \| [\d.]+ \|$`).FindSubmatch(benchmarks)
	said := regexp.MustCompile(`256 goroutines make ([\d.]+) times as many .*Mutex, and\s+one goroutine ([\d.]+) times`).FindSubmatch(readme)
	if row == nil || said == nil {
		t.Fatalf("the benchmarks have %q, the README %q", row, said)
	}
	if string(row[1]) != string(said[2]) || !strings.HasPrefix(string(row[2]), string(said[1])) {
		t.Errorf("the benchmarks have %s and %s, the README %s and %s", row[1], row[2], said[2], said[1])
	}
}
