package testetcd

import (
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// Program builds the program in the directory of the test, with the race
// detector if the tests have it, and returns its path, which ends with the name.
func Program(tb testing.TB, name string) (path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), name)
	args := []string{"build", "-o", path}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	if out, err := exec.CommandContext(tb.Context(), "go", append(args, ".")...).CombinedOutput(); err != nil {
		tb.Fatalf("testetcd: go build: %v\n%s", err, out)
	}
	return path
}
