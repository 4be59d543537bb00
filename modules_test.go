package claims_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// ARCHITECTURE.md and the README have how many modules a program links, which is one of the
// things that people choose a library by.
func TestLinkedModules(t *testing.T) {
	t.Parallel()
	for _, document := range []string{"README.md", "ARCHITECTURE.md"} {
		text, err := os.ReadFile(document)
		if err != nil || !strings.Contains(string(text), "links 18 modules") {
			t.Errorf("%s has another number of modules; %v", document, err)
		}
	}
	for pkg, want := range map[string]int{"./etcdclaims": 18, "./etcdclaims/claimtest": 61} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		modules := map[string]bool{}
		for _, m := range strings.Fields(string(out)) {
			modules[m] = true
		}
		if len(modules) != want {
			t.Errorf("%s links %d modules, this one among them; ARCHITECTURE.md says %d", pkg, len(modules), want)
		}
	}
}
