package testetcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// awaitUnlocked waits until nobody has locked the log of a server that was stopped, since
// etcd exits if it cannot lock its log. A process that is being started has copies of all
// open files of this one, and so their locks, until it runs its own program.
func awaitUnlocked(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			err := tryLock(log)
			if err == nil {
				break
			}
			if !errors.Is(err, fileutil.ErrLocked) || time.Since(begin) > patience {
				return fmt.Errorf("lock %s: %w", log, err)
			}
		}
	}
	return nil
}

// tryLock locks the file and unlocks it, while no process is started that would have a copy
// of this lock too.
func tryLock(file string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := fileutil.TryLockFile(file, os.O_WRONLY, fileutil.PrivateFileMode)
	if err != nil {
		return err
	}
	return f.Close()
}
