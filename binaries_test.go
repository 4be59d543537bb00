package claims_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Each test binary that links the etcd server takes about six seconds of processor time to compile,
// link and load. A test that needs a server stands where another one does: what is about several
// packages in internal/scenarios, what is about the programs in examples.
func TestFewBinariesLinkTheServer(t *testing.T) {
	t.Parallel()
	const known = 20 // may only fall
	const format = `{{range .Deps}}{{if eq . "go.etcd.io/etcd/server/v3/embed"}}{{$.ImportPath}}{{"\n"}}{{end}}{{end}}`
	out, err := exec.CommandContext(t.Context(), "go", "list", "-test", "-f", format, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var binaries []string
	for line := range strings.Lines(string(out)) {
		if path, ok := strings.CutSuffix(line, ".test\n"); ok {
			binaries = append(binaries, strings.TrimPrefix(path, module+"/"))
		}
	}
	if len(binaries) != known {
		t.Errorf("%d test binaries link the etcd server, want %d: %q", len(binaries), known, binaries)
	}
}
