package simulation_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// explored are the files that the worlds of the explorer run, and in which of its scopes a fault of them is searched.
var explored = []struct{ files, scopes string }{
	{"internal/protocol/", "^(claims|groups): "},
	{"internal/txn/", "^claims: "},
	{"internal/record/", "^claims: work: "},
	{"internal/item/", "^queue: "},
	{"internal/tick/", "^schedules: "},
	{"etcdclaims/group/plan.go", "^groups: "},
}

// Why the explorer cannot find a mutant: in its worlds, …
const (
	alone     = "no two requests share a round trip"
	unused    = "nobody uses that option, or that verb"
	mirrored  = "what an error of I/O means is given"
	timeless  = "pauses take no time, and all clocks agree"
	apart     = "no two callers of a client wait for a key"
	trusted   = "nobody is suspected"
	texts     = "all values are short, and of this version"
	untouched = "nobody deletes a key of a queue"
	together  = "the record of a run goes with its slot"
	moved     = "a partition may move without need"
)

// scopes returns in which scopes the explorer looks for the mutant, or "" if it does not run the changed files.
func (m mutant) scopes() string {
	for _, of := range explored {
		if slices.ContainsFunc(m.edits, func(e edit) bool { return strings.HasPrefix(e.file, of.files) }) {
			return of.scopes
		}
	}
	return ""
}

// TestMutantsExplored shows that the explorer finds each deliberate fault of the files that it runs, except those whose
// entry has the reason why it cannot.
func TestMutantsExplored(t *testing.T) {
	if !*withMutants {
		t.Skip("each mutant is compiled and explored: run with -mutants")
	}
	for _, m := range allMutants() {
		if m.scopes() == "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			binary := filepath.Join(t.TempDir(), "explore")
			m.compile(t, "build", "-ldflags=-s -w", "-o", binary, "../explore")
			if m.unseen != "" {
				if finding := explore(t, binary, m.scopes(), 2_000); finding != "" {
					t.Errorf("found, although %s: %s", m.unseen, finding)
				}
				return
			}
			for _, most := range []int{1_000, 20_000, 200_000} { // most are found at once
				if finding := explore(t, binary, m.scopes(), most); finding != "" {
					t.Logf("found within %d states: %s", most, finding)
					return
				}
			}
			t.Error("not found")
		})
	}
}

// explore searches scopes up to some states each, and returns the first finding with its scope, or "".
func explore(t *testing.T, binary, scopes string, most int) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-scope", scopes, "-most", fmt.Sprint(most))
	cmd.Dir = t.TempDir()
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	row, finding := "", ""
	for lines := bufio.NewScanner(out); finding == "" && lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "| "):
			row, _, _ = strings.Cut(line[2:], " |")
		case line != "" && line[0] != '|':
			finding = row + ": " + shorten(line)
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err != nil && finding == "" {
		panicked := failures.FindString(failed.String())
		if panicked == "" {
			t.Fatalf("%v: %s", err, last(failed.String(), 4000))
		}
		return "after " + row + ": " + shorten(panicked)
	}
	return finding
}

// The documents say how many deliberate faults the explorer finds.
func TestExploredFigures(t *testing.T) {
	t.Parallel()
	all, within, found := allMutants(), 0, 0
	for _, m := range all {
		if m.scopes() != "" {
			within++
			if m.unseen == "" {
				found++
			}
		}
	}
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{fmt.Sprintf("Of %d [deliberate faults]", len(all)), fmt.Sprintf("%d change code", within), fmt.Sprintf("finds %d.", found)} {
		if !strings.Contains(string(page), says) {
			t.Errorf("docs/protocol.md does not say %q", says)
		}
	}
}
