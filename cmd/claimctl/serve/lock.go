package serve

import "os"

// lockFile locks a file for this process, and makes it if it does not exist. The lock ends when the
// file is closed or the process ends, also if it is killed. isLocked reports whether the error is
// that another process has the lock.
func lockFile(path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := tryLock(file); err != nil {
			_ = file.Close()
			return nil, err
		}
		if isAt(file, path) {
			return file, nil
		}
		_ = file.Close() // its last owner has removed it since it was opened
	}
}

// isAt reports whether the file is that of the path.
func isAt(file *os.File, path string) bool {
	is, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(is, now)
}

// unlock removes the file and ends its lock. A process that has opened it sees that it is gone.
func unlock(file *os.File) error {
	_ = os.Remove(file.Name())
	return file.Close()
}
