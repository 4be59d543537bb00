//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package serve

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file, unless another process has it locked. The system unlocks it when the
// process ends.
func tryLock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// isLocked reports whether another process has the lock.
func isLocked(err error) bool { return errors.Is(err, syscall.EWOULDBLOCK) }
