package testetcd

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Binary makes processes run the etcd at the path, instead of one of the
// version that this module requires. See [Build].
func Binary(path string) Option {
	return func(o *options) { o.binary = path }
}

// outside is the environment of a build that a developer's workspace does not concern.
const outside = "GOWORK=off"

// Build returns the path of the etcd that the module in the directory requires,
// and builds it if no test on this machine did so before. A module requires but
// one version, so that servers of another one have a module of their own, and
// run as processes.
func Build(dir string) (string, error) {
	out, err := goCommand(dir, "list", "-m", "-f", "{{.Version}}", serverPackage)
	if err != nil {
		return "", fmt.Errorf("testetcd: which etcd %s requires: %w", dir, err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(out), "v")
	return built(version, func(path string) error {
		root, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		return build(path, root, []string{outside})
	})
}

// etcd returns the path of what processes run.
func (o options) etcd() (string, error) {
	switch {
	case o.binary != "" && o.stallable:
		return "", errors.New("testetcd: StallableDisk excludes Binary")
	case o.stallable:
		return stallableBinary()
	case o.binary != "":
		return o.binary, nil
	}
	return binary()
}
