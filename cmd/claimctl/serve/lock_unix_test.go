//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package serve

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file beside the socket that another program needs is neither locked, changed nor removed.
func TestSocketBesideFiles(t *testing.T) {
	for name, make := range map[string]func(lock string) error{
		"with a content": func(lock string) error { return os.WriteFile(lock, []byte("inputs"), 0o600) },
		"link to a file": func(lock string) error {
			return errors.Join(os.WriteFile(lock+".d", nil, 0o600), os.Symlink(lock+".d", lock))
		},
		"link to nothing": func(lock string) error { return os.Symlink(lock+".d", lock) },
		"directory":       func(lock string) error { return os.Mkdir(lock, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "flake")
			if err := make(path + ".lock"); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path + ".lock")
			if err != nil {
				t.Fatal(err)
			}
			if l, err := listenUnix(path); l != nil || !strings.Contains(err.Error(), "another --socket") {
				t.Errorf("%v, %v", l, err)
			}
			after, err := os.Lstat(path + ".lock")
			if err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
				t.Errorf("the file is %v, %v", after, err)
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("there is a socket")
			}
		})
	}
}
