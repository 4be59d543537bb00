package examples_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
)

const files = 300

func testQuickstart(t *testing.T, bin string) {
	if err := testetcd.Signals(); err != nil {
		t.Skip(err)
	}
	t.Run("OK", func(t *testing.T) {
		t.Parallel()
		out, err := command(t, bin, "-root", tree(t, files)).CombinedOutput()
		checkRun(t, string(out), err)
	})
	t.Run("OK with endpoints", func(t *testing.T) {
		t.Parallel()
		server := testetcd.Start(t)
		out, err := command(t, bin, "-root", tree(t, files), elsewhere(server)).CombinedOutput()
		checkRun(t, string(out), err)
		checkEmpty(t, server)
	})
	t.Run("interrupt", func(t *testing.T) {
		t.Parallel()
		testInterrupt(t, bin)
	})
	t.Run("fails", func(t *testing.T) {
		t.Parallel()
		f := func(want string, args ...string) {
			t.Helper()
			out, err := command(t, bin, args...).CombinedOutput()
			if err == nil {
				t.Errorf("%q: exit 0", args)
			}
			if !strings.Contains(string(out), want) {
				t.Errorf("%q printed:\n%s\nwant it to say %q", args, out, want)
			}
		}
		f("2 .go files", "-root", tree(t, 2))
		f("not done after 2s", "-root", tree(t, files), "-timeout", "2s")
		f("negative", "-pace", "-1")
		f("unexpected argument", "fast")
	})
}

// Whatever ends the parent ends the workers, even the one that is frozen.
func testInterrupt(t *testing.T, bin string) {
	if runtime.GOOS != "linux" {
		t.Skip("finds processes below /proc")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Kill} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			args := []string{"-root", tree(t, files)}
			if sig == os.Interrupt {
				server := testetcd.Start(t)
				args = append(args, elsewhere(server))
				defer checkEmpty(t, server)
			}
			// A file of its own tells its processes from those of other runs.
			own := filepath.Join(t.TempDir(), "quickstart")
			if err := os.Link(bin, own); err != nil {
				t.Fatal(err)
			}
			cmd := command(t, own, args...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			frozen := false
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if strings.Contains(lines.Text(), "worker-2 is frozen") {
					frozen = true
					if err := cmd.Process.Signal(sig); err != nil {
						t.Error(err)
					}
				}
			}
			if !frozen {
				t.Error("no worker was frozen")
			}
			if err := cmd.Wait(); err == nil {
				t.Error("exit 0")
			}
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				left := processes(t, cmd.Path)
				if len(left) == 0 {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("processes are left over: %v", left)
				}
			}
		})
	}
}

// processes returns the directories below /proc of those that run a program.
func processes(t *testing.T, program string) []string {
	t.Helper()
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, exe := range exes {
		// Most processes are none of our business, and some are gone by now.
		if target, err := os.Readlink(exe); err == nil && target == program {
			found = append(found, filepath.Dir(exe))
		}
	}
	return found
}

// checkRun checks that a run went well, and that it shows what it is for.
func checkRun(t *testing.T, out string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	lines, words, size := treeCounts(files)
	counts := fmt.Sprintf("%d lines, %d words, %d bytes", lines, words, size)
	for _, want := range []string{
		`worker-1 is killed, holding \S+ \(fence \d+\)`,
		`worker-2 is frozen, about to write \S+ \(fence \d+\)`,
		`worker-\d takes over \S+ from worker-1: fence \d+ after \d+`,
		`worker-\d takes over \S+ from worker-2: fence \d+ after \d+`,
		`worker-2 is resumed`,
		`worker-2 writes \S+ late: refused by etcd: .*stale`,
		`worker-2 cannot complete \S+: .*lost`,
		`three processes: ` + counts,
		`one process: +` + counts,
		fmt.Sprintf(`%[1]d files, %[1]d results; [1-9]\d* taken over; 1 late write refused`, files),
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// tree makes a directory with n files to count, and one that is not.
func tree(t *testing.T, n int) string {
	t.Helper()
	root := t.TempDir()
	write := func(name string, text []byte) {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		write(fmt.Sprintf("dir%02d/file%03d.go", i%17, i), text(i))
	}
	write("dir00/README", []byte("not Go\n"))
	return root
}

// text is that of the i-th file: i lines of three words.
func text(i int) []byte { return bytes.Repeat([]byte("one\ttwo  three\n"), i) }

func treeCounts(n int) (lines, words, size int) {
	for i := range n {
		lines, words, size = lines+i, words+3*i, size+len(text(i))
	}
	return lines, words, size
}
