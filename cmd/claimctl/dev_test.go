//go:build unix

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dev runs the claimctl-dev beside claimctl, passes an interrupt on to it, and exits as it does.
func TestDevRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"claimctl", devProgram} {
		if out, err := exec.Command("go", "build", "-o", dir+"/", "../"+name).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", name, err, out)
		}
	}
	w := &world{T: t}
	// The interrupt goes to claimctl alone, as from a service manager.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.noErr(err)
	address := l.Addr().String()
	w.noErr(l.Close())
	p := w.start(filepath.Join(dir, "claimctl"), "dev", "-empty", "-page", "", "-listen", address)
	eventually(t, "its etcd answers", func() bool {
		select {
		case <-p.done:
			t.Fatalf("it has ended: %s%s", p.out.String(), p.err.String())
		default:
		}
		return w.ctl("ls", "--endpoints", address, "--command-timeout", "1s").code == 0
	})
	p.signal(syscall.SIGINT)
	if r := p.ends(0); !strings.Contains(r.out, address) {
		t.Errorf("it says %q", r.out)
	}
	if r := w.ctl("ls", "--endpoints", address, "--command-timeout", "1s"); r.code != exitUnreachable {
		t.Errorf("its etcd runs on: %+v", r)
	}
	// Its exit code is that of claimctl.
	w.start(filepath.Join(dir, "claimctl"), "dev", "-nope").ends(1)
	// Without one beside claimctl that of PATH runs.
	other := t.TempDir()
	w.noErr(os.Rename(filepath.Join(dir, devProgram), filepath.Join(other, devProgram)))
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "claimctl"), "dev", "-nope")
	cmd.Env = append(os.Environ(), "PATH="+other)
	cmd.WaitDelay = 5 * time.Second
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "-nope") {
		t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), out)
	}
}

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
