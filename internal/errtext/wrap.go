// Package errtext makes the texts of errors that wrap those of other packages of
// this module: one prefix, once, and one line.
package errtext

import (
	"fmt"
	"strings"
)

// The prefixes of packages whose errors are wrapped by others.
var prefixes = []string{"etcdclaims: ", "fencing: ", "middleware: ", "sched: "}

// Wrap returns an error that matches err. Its text is what, a colon, and the text of
// err without the prefix of its package.
func Wrap(what string, err error) error { return &wrapped{what: what, err: err} }

type wrapped struct {
	what string
	err  error
}

func (e *wrapped) Error() string { return e.what + ": " + Inner(e.err) }
func (e *wrapped) Unwrap() error { return e.err }

// Text returns the text of an error, also of one whose method Error panics, as that of a nil
// pointer may.
func Text(err error) string { return fmt.Sprint(err) }

// Inner returns the text of an error within that of another: without the prefix of
// its package, on one line.
func Inner(err error) string {
	text := err.Error()
	for _, prefix := range prefixes {
		if rest, found := strings.CutPrefix(text, prefix); found {
			text = rest
			break
		}
	}
	return OneLine(text)
}
