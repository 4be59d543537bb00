//go:build unix

package etcdclaims_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// childProcess starts this program with more environment, by which an init function knows
// that it is a child. The child ends at the latest with the test.
func childProcess(tb testing.TB, env ...string) (child *testetcd.Child, in io.Closer, out *os.File) {
	tb.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	stdin, in, err := os.Pipe()
	noErr(tb, err)
	out, stdout, err := os.Pipe()
	noErr(tb, err)
	cmd.Stdin, cmd.Stdout = stdin, stdout
	child, err = testetcd.StartChild(cmd)
	noErr(tb, err)
	noErr(tb, errors.Join(stdin.Close(), stdout.Close()))
	tb.Cleanup(func() { child.Kill(); _ = in.Close(); _ = out.Close() })
	return child, in, out
}

// childEnv is the environment from which childEtcd makes its client.
func childEnv(server *testetcd.Process, prefix string) []string {
	return []string{"ETCDCLAIMS_ENDPOINT=" + server.Endpoints()[0], "ETCDCLAIMS_PREFIX=" + prefix}
}

// childEtcd returns the client of a child, and the prefix of its claims.
func childEtcd() (etcd *clientv3.Client, prefix string, err error) {
	etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("ETCDCLAIMS_ENDPOINT")}, Logger: zap.NewNop()})
	return etcd, os.Getenv("ETCDCLAIMS_PREFIX"), err
}
