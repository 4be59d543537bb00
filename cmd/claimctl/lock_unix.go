//go:build unix && !solaris && !aix

package main

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockPatience is how long lockFile waits. It is held for the time of a write.
const lockPatience = 2 * time.Second

// lockFile waits until no other process has the lock, and goes on without it after a while: a
// process that is stopped must not stop all others. File systems without locks have none.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockPatience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
	}
	return func() { _ = f.Close() }, nil // which ends the lock
}
