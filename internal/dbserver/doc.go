// Package dbserver has the commands that serve SQL databases from a directory,
// for tests and measurements: what is installed is found, and where root runs it
// another user serves, since none of these servers wants to be root.
package dbserver

import "errors"

// ErrAbsent says that the server is not installed, and names what to install.
var ErrAbsent = errors.New("is not installed")
