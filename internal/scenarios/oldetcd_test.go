package scenarios_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
)

// A release is a version of etcd to test with.
type release struct {
	line   string                     // what its version starts with
	binary func(tb testing.TB) string // "": the one that this module requires
	warns  bool                       // whether clients warn of it
}

var releases = []release{
	{line: "3.4.", binary: installed, warns: true},
	{line: "3.5.", binary: pinned("../oldetcd/v35")},
	{line: "3.6.", binary: pinned("../oldetcd/v36")},
	{line: "3.7."},
}

// installedEnv names an etcd 3.4 to use instead of the one that is installed.
const installedEnv = "OLDETCD_34"

// installed is Debian's etcd: one as old as 3.4 is not a module that another
// could require. Without it, the test is skipped.
func installed(tb testing.TB) string {
	tb.Helper()
	path := os.Getenv(installedEnv)
	if path == "" {
		path = "/usr/bin/etcd"
	}
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("no etcd 3.4: install Debian's package etcd-server, or set %s to the path of one (%v)", installedEnv, err)
	}
	return path
}

// pinned builds what the module in the directory requires.
func pinned(dir string) func(tb testing.TB) string {
	return func(tb testing.TB) string {
		tb.Helper()
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); errors.Is(err, fs.ErrNotExist) {
			tb.Skipf("no module %s: it is in the repository, but not in what is published", dir)
		}
		path, err := testetcd.Build(dir)
		if err != nil {
			tb.Fatal(err)
		}
		return path
	}
}

// start starts a server of the release. The test is skipped if there is none.
func (r release) start(t *testing.T) *testetcd.Process {
	t.Helper()
	var opts []testetcd.Option
	if r.binary != nil {
		opts = append(opts, testetcd.Binary(r.binary(t)))
	}
	p := testetcd.StartProcess(t, opts...)
	status, err := p.Client(t).Status(t.Context(), p.Endpoints()[0])
	noErr(t, err)
	t.Logf("etcd %s", status.Version)
	switch {
	case strings.HasPrefix(status.Version, r.line):
	case r.line == "3.4.":
		t.Skipf("the etcd that is installed is %s, not 3.4: set %s to the path of one", status.Version, installedEnv)
	default:
		t.Fatalf("etcd is %s, not %s*", status.Version, r.line)
	}
	return p
}
