package serve

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// listenTCP listens on a loopback address, such as 127.0.0.1:8379.
func listenTCP(address string) (net.Listener, error) {
	if err := checkLoopback(address); err != nil {
		return nil, err
	}
	return net.Listen("tcp", address)
}

// checkLoopback refuses addresses that other hosts can reach, and names, which can be those of any.
func checkLoopback(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q is not an IP address with a port: %w", address, err)
	}
	if !at.Addr().IsLoopback() {
		return fmt.Errorf("address %q can be reached from other hosts; use 127.0.0.1 or [::1]", address)
	}
	return nil
}

// socket is a unix socket that only its user can open.
type socket struct {
	net.Listener
	path string
	made fs.FileInfo
	lock io.Closer
}

// listenUnix listens on a unix socket with mode 0600. A lock on the file beside it, which stays, keeps
// other servers off for as long as this process lives, where the system has such locks. It replaces a
// socket if nobody listens there: the socket of a server that was killed. The socket has its mode before
// it has its name, so nobody can open it earlier.
func listenUnix(path string) (net.Listener, error) {
	if _, err := isThere(path); err != nil { // before a file is made beside it
		return nil, err
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	s, err := listenLocked(path)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	s.lock = lock
	return s, nil
}

// isThere reports whether there is a socket. The error is that there is another file.
func isThere(path string) (bool, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		return false, fmt.Errorf("listen on %q: the file is not a socket", path)
	}
	return err == nil, nil
}

func listenLocked(path string) (*socket, error) {
	there, err := isThere(path)
	if err != nil {
		return nil, err
	}
	if there {
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("listen on %q: another process listens there", path)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listen on %q: another process may listen there: %w", path, err)
		}
	}
	private, err := os.MkdirTemp(filepath.Dir(path), ".s") // with mode 0700
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	defer os.RemoveAll(private)
	first := filepath.Join(private, "s")
	listener, err := net.Listen("unix", first)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	made, err := own(first, path)
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	return &socket{Listener: listener, path: path, made: made}, nil
}

// own gives a socket its mode and its name.
func own(first, path string) (fs.FileInfo, error) {
	if err := os.Chmod(first, 0o600); err != nil {
		return nil, err
	}
	made, err := os.Lstat(first)
	if err != nil {
		return nil, err
	}
	return made, os.Rename(first, path)
}

// Addr returns the address that programs use.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: s.path} }

// Close closes the socket, and removes its file unless another server has replaced it. The lock file stays.
func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
		_ = os.Remove(s.path)
	}
	return errors.Join(s.Listener.Close(), s.lock.Close())
}
