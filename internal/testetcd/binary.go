package testetcd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/version"
)

// binaryEnv names an etcd to use instead of building one, to test with another
// version.
const binaryEnv = "TESTETCD_BINARY"

const serverPackage = "go.etcd.io/etcd/server/v3"

// binary returns the path of an etcd of the version this module requires, and
// builds it if no test on this machine did so before.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryEnv); path != "" {
		return path, nil
	}
	return built(version.Version, func(path string) error {
		root, err := moduleRoot()
		if err != nil {
			return err
		}
		return build(path, root, nil)
	})
})

// built returns the path of the etcd binary for the version. If the binary does not exist yet,
// built calls create to build it.
func built(version string, create func(path string) error) (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("testetcd-%d-%s-%s-%s-%s",
		os.Getuid(), version, runtime.Version(), runtime.GOOS, runtime.GOARCH))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// The name can be guessed, so what is there may be another user's gift.
	if info, err := os.Lstat(dir); err != nil {
		return "", err
	} else if !info.IsDir() || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("testetcd: %s is not a directory of this user alone", dir)
	}
	path := filepath.Join(dir, "etcd")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil
	}
	return path, create(path)
}

// build builds etcd at path, as the module in root requires it, with more environment and
// flags. Test binaries of several packages may do so at the same time: the build cache
// shares the work, and the last one to rename wins.
func build(path, root string, env []string, flags ...string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(path), "build-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	out := filepath.Join(tmp, filepath.Base(path))
	args := append([]string{"build", "-buildvcs=false", "-trimpath", "-o", out}, flags...)
	cmd := exec.Command("go", append(args, serverPackage)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testetcd: build etcd: %w\n%s", err, msg)
	}
	return os.Rename(out, path)
}

// moduleRoot returns the directory of the module that says which etcd to build:
// the one this file is in, or else that of the working directory, which for a
// test is its package's.
func moduleRoot() (string, error) {
	var dirs []string
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		dirs = append(dirs, filepath.Dir(file))
	}
	if wd, err := os.Getwd(); err == nil {
		dirs = append(dirs, wd)
	}
	for _, dir := range dirs {
		cmd := exec.Command("go", "env", "GOMOD")
		cmd.Dir = dir
		out, err := cmd.Output()
		mod := strings.TrimSpace(string(out))
		if err == nil && mod != "" && mod != os.DevNull {
			return filepath.Dir(mod), nil
		}
	}
	return "", errors.New("testetcd: no module to build etcd from; set " + binaryEnv + " to the path of one")
}
