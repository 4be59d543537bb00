package main

import (
	"strings"
	"testing"
)

// The help says that another program is needed, and how it is installed, also where it is not
// installed. So does the error.
func TestDevHelp(t *testing.T) {
	w := newWorld(t)
	t.Setenv("PATH", t.TempDir())
	const install = "go install github.com/etcdclaims/claims/cmd/claimctl-dev@latest"
	w.flags = nil
	for _, args := range [][]string{{"dev", "--help"}, {"dev", "-h"}, {"help", "dev"}} {
		out := w.ok(args...)
		if before, _, ok := strings.Cut(out, "-listen"); !ok || !strings.Contains(before, "a separate program that claimctl does not contain") || !strings.Contains(before, install) {
			t.Errorf("%q: %s", args, out)
		}
	}
	w.fails(exitNotFound, install, "dev")
	if out := w.ok("--help"); !strings.Contains(out, "needs claimctl-dev") {
		t.Errorf("%s", out)
	}
}
