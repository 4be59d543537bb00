package simulation_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var withMutants = flag.Bool("mutants", false, "see whether the simulation finds the deliberate faults; it takes some minutes")

func allMutants() []mutant {
	return slices.Concat(mutants, coreMutants, refusalMutants, queueMutants, groupMutants, schedMutants, lazyMutants)
}

// TestMutants shows that the checks can fail: each deliberate fault of the
// protocol is found within the seeds that are stated for it.
func TestMutants(t *testing.T) {
	if !*withMutants {
		t.Skip("each mutant is compiled and simulated: run with -mutants")
	}
	var table strings.Builder
	for _, m := range allMutants() {
		t.Run(m.name, func(t *testing.T) {
			if m.tests != "" {
				finding := m.fail(t, m.build(t))
				t.Log(finding)
				fmt.Fprintf(&table, "| %s | %s | | %s |\n", m.name, m.tests, finding)
				return
			}
			seed, finding := m.search(t, m.build(t))
			if seed == "" {
				fmt.Fprintf(&table, "| %s | - | %d | not found |\n", m.name, m.seeds)
				t.Fatalf("not found within %d seeds", m.seeds)
			}
			t.Logf("found with seed %s: %s", seed, finding)
			fmt.Fprintf(&table, "| %s | %s | %d | %s |\n", m.name, seed, m.seeds, finding)
		})
	}
	t.Logf("\n%s", &table)
}

// TestMutantsFit shows that each deliberate fault still fits the source, and that
// the tests that must find it exist, without looking whether they do.
func TestMutantsFit(t *testing.T) {
	names := map[string][]string{} // of tests, by package
	for _, m := range allMutants() {
		if (m.tests == "") == (m.seeds == 0) {
			t.Errorf("%s: either the simulation finds it, or tests do", m.name)
		}
		if m.unseen != "" && m.scopes() == "" {
			t.Errorf("%s: the explorer does not run what it changes", m.name)
		}
		if m.tests != "" {
			if names[m.home()] == nil {
				names[m.home()] = testsOf(t, m.home())
			}
			for name := range strings.SplitSeq(m.tests, "|") {
				if !slices.Contains(names[m.home()], name) {
					t.Errorf("%s: package %s has no test %s", m.name, m.home(), name)
				}
			}
		}
		files := map[string]string{}
		for _, e := range m.edits {
			if files[e.file] == "" {
				b, err := os.ReadFile(e.path())
				if err != nil {
					t.Fatal(err)
				}
				files[e.file] = string(b)
			}
			if n := strings.Count(files[e.file], e.from); n != 1 {
				t.Errorf("%s: %s has %d times %q", m.name, e.file, n, e.from)
			}
			files[e.file] = strings.Replace(files[e.file], e.from, e.to, 1)
		}
	}
}

// testsOf returns the names of the tests of a package.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testNames.FindAllStringSubmatch(string(b), -1) {
			names = append(names, found[1])
		}
	}
	return names
}

var testNames = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// fail runs the regular tests that must find the mutant, and returns how they
// failed.
func (m mutant) fail(t *testing.T, binary string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", m.home()))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^("+m.tests+")$", "-test.timeout=5m")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TESTETCD_CASES=all")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil && strings.Contains(string(out), "no tests to run"):
		t.Fatalf("package %s has no test %s", m.home(), m.tests)
	case err == nil:
		t.Fatalf("not found by %s:\n%s", m.tests, last(string(out), 4000))
	}
	failed := failures.FindStringSubmatch(string(out))
	if failed == nil {
		t.Fatalf("%s ended, but not by a failure:\n%s", m.tests, last(string(out), 4000))
	}
	finding, _, _ := strings.Cut(failed[0], "\n")
	return shorten(strings.TrimSpace(finding))
}

// failures are what go test prints of a test that failed, of one that did not
// end, and of goroutines that wait for each other.
var failures = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: .*|^panic: .*|^fatal error: .*|^--- FAIL: .*`)

// search simulates the mutant, some seeds at a time, until it is found out.
func (m mutant) search(t *testing.T, binary string) (seed, finding string) {
	t.Helper()
	const some = 6
	for from := 1; from <= m.seeds; from += some {
		cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestSimulation$", fmt.Sprintf("-seed=%d", from),
			fmt.Sprintf("-seeds=%d", min(some, m.seeds-from+1)), fmt.Sprintf("-simulate=%v", *lasting),
			"-replays=0", fmt.Sprintf("-queues=%t", m.queue), "-test.timeout=30m", "-kept="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		if seed, finding = firstFinding(string(out)); seed == "" {
			t.Fatalf("the run failed, but not by a finding:\n%s", last(string(out), 4000))
		}
		return seed, finding
	}
	return "", ""
}

// build compiles the test of this package, or of the one whose tests must find the
// mutant, with the mutant in place of the real code.
func (m mutant) build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "mutant.test")
	of := "."
	if m.tests != "" {
		of = "../../" + m.home()
	}
	m.compile(t, "test", "-c", "-ldflags=-s -w", "-o", binary, of)
	return binary
}

// compile runs a command of go, which is shown the mutant in place of the real code.
func (m mutant) compile(t *testing.T, command string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{} // real file: changed file
	for _, e := range m.edits {
		name, err := filepath.Abs(e.path())
		if err != nil {
			t.Fatal(err)
		}
		source := name
		if changed := replace[name]; changed != "" {
			source = changed
		}
		b, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), e.from); n != 1 {
			t.Fatalf("%s has these lines %d times, not once: mend the mutant\n%s", e.file, n, e.from)
		}
		replace[name] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(replace[name], []byte(strings.Replace(string(b), e.from, e.to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{command, "-overlay=" + overlay}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
}

var findings = regexp.MustCompile(`simulation_test\.go:\d+: seed (\d+): (.*)`)

// firstFinding returns the least seed that failed, and how.
func firstFinding(out string) (seed, finding string) {
	least := 0
	for _, m := range findings.FindAllStringSubmatch(out, -1) {
		n := 0
		if _, err := fmt.Sscan(m[1], &n); err == nil && (least == 0 || n < least) {
			least, seed, finding = n, m[1], m[2]
		}
	}
	return seed, shorten(finding)
}

func shorten(finding string) string {
	if len(finding) > 160 {
		finding = finding[:160] + "…"
	}
	return finding
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }
