//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package serve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lockFile locks an empty file for this process, and makes it if it does not exist. The lock ends when it
// is closed or the process ends, also if the process is killed. The file stays: it may be that of another
// program, and a lock on a file that was removed excludes nobody.
//
// Errors: the lock is held by another process, or the file is not one that lockFile makes.
func lockFile(path string) (io.Closer, error) {
	const remedy = "another program uses it: choose another --socket"
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("lock file %q is not a regular file, but %v; %s", path, info.Mode(), remedy)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file: %w", err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("lock file: %w", err)
	case !info.Mode().IsRegular() || info.Size() > 0:
		err = fmt.Errorf("lock file %q is not an empty regular file; %s", path, remedy)
	default:
		err = tryLock(file)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// tryLock locks a file, unless another process has it locked.
func tryLock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("another process listens there: it has locked %q", file.Name())
	case err != nil:
		return fmt.Errorf("lock %q: %w", file.Name(), err)
	}
	return nil
}
