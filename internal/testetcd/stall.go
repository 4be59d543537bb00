package testetcd

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"go.etcd.io/etcd/api/v3/version"
)

// stallEnv names the file that blocks the fsync of an etcd while it exists.
const stallEnv = "TESTETCD_STALL"

// synced are the files through which etcd calls fdatasync: for its log, and for its database.
var synced = map[string]string{
	"go.etcd.io/etcd/client/pkg/v3": "fileutil/sync_linux.go",
	"go.etcd.io/bbolt":              "bolt_linux.go",
}

// syncCall is how these files call fdatasync, and blocked is put before that call.
const (
	syncCall = "return syscall.Fdatasync("
	blocked  = `for path, ok := syscall.Getenv("` + stallEnv + `"); ok && syscall.Access(path, 0) == nil; {
		pause := syscall.Timespec{Nsec: 1e6}
		_ = syscall.Nanosleep(&pause, nil)
	}
	`
)

// StallableDisk makes processes run an etcd of the version that this module requires, whose
// disk [ProcessMember.StallDisk] can block. They start on Linux only, and not with [Binary].
// The environment variable TESTETCD_BINARY has no effect on them.
func StallableDisk() Option {
	return func(o *options) { o.stallable = true }
}

// StallDisk blocks each fdatasync of the process, in the log and in the database, as a disk
// that is full of other work does. Requests that write wait until ResumeDisk. So does a
// restart. The process needs [StallableDisk].
func (m *ProcessMember) StallDisk() error {
	if !m.options.stallable {
		return fmt.Errorf("testetcd: stall the disk of %s: it was started without StallableDisk", m.member.name)
	}
	return os.WriteFile(m.stallPath(), nil, 0o600)
}

// ResumeDisk ends what StallDisk began.
func (m *ProcessMember) ResumeDisk() error {
	return os.RemoveAll(m.stallPath()) // which may be gone
}

func (m *ProcessMember) stallPath() string { return m.member.dir + ".stall" }

// stallableBinary returns the path of an etcd whose fsync can be blocked, and builds it if no
// test on this machine did so before.
func stallableBinary() (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("testetcd: StallableDisk on %s: %w", runtime.GOOS, errors.ErrUnsupported)
	}
	edit := crc32.ChecksumIEEE([]byte(fmt.Sprint(synced, syncCall, blocked)))
	return built(fmt.Sprintf("%s-stallable-%08x", version.Version, edit), func(path string) error {
		root, err := moduleRoot()
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "testetcd-stallable-*")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		mod, err := stallableModule(root, dir)
		if err != nil {
			return fmt.Errorf("testetcd: etcd whose fsync can be blocked: %w", err)
		}
		return build(path, root, []string{outside}, "-modfile="+mod)
	})
}

// stallableModule writes a go.mod to dir that is the one in root with edited copies of
// synced, and returns its path.
func stallableModule(root, dir string) (path string, err error) {
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	path = filepath.Join(dir, "go.mod")
	for module, name := range synced {
		out, err := goCommand(root, "list", "-m", "-f", "{{.Dir}}", module)
		if err != nil {
			return "", err
		}
		source := strings.TrimSpace(out)
		if source == "" {
			return "", fmt.Errorf("module %s is not downloaded", module)
		}
		cp := filepath.Join(dir, filepath.Base(module))
		if err := os.CopyFS(cp, os.DirFS(source)); err != nil {
			return "", err
		}
		if err := makeStallable(filepath.Join(cp, filepath.FromSlash(name))); err != nil {
			return "", err
		}
		if _, err := goCommand(root, "mod", "edit", "-replace="+module+"="+cp, path); err != nil {
			return "", err
		}
	}
	return path, nil
}

// goCommand returns what the go command prints, for the module in a directory.
func goCommand(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), outside)
	var stderr strings.Builder // what it downloads does not belong to the answer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// makeStallable edits a file that calls fdatasync.
func makeStallable(path string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if bytes.Count(source, []byte(syncCall)) != 1 {
		return fmt.Errorf("%s does not call fdatasync as it did", path)
	}
	return os.WriteFile(path, bytes.Replace(source, []byte(syncCall), []byte(blocked+syncCall), 1), 0o600)
}
