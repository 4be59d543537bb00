package claimerr

import (
	"fmt"
	"strings"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
)

const maxNameBytes = 128

// CheckName returns why a name, such as of a queue or a group, cannot be part of keys and be read by
// people, or nil.
func CheckName(what, name string) error {
	if !keyspace.Printable(name) || len(name) > maxNameBytes || strings.Contains(name, "/") {
		text := fmt.Sprintf("%s name %.140q must be printable UTF-8 of 1 to %d bytes without slashes",
			what, name, maxNameBytes)
		return errtext.Wrap(text, ErrInvalidKey)
	}
	return nil
}
