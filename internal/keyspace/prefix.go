package keyspace

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKeyBytes is the length of the longest key of a claim. Package fencing, which links nothing, has
// the same number.
const MaxKeyBytes = 1024

// Printable reports whether s is non-empty UTF-8 without control characters.
func Printable(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// CheckPrefix returns why no client can have the prefix, or nil.
func CheckPrefix(prefix string) error {
	//nolint:staticcheck // each error begins with the name of the field
	switch {
	case !strings.HasSuffix(prefix, "/") || !Printable(prefix) || len(prefix) > MaxKeyBytes:
		return fmt.Errorf("Prefix %.100q must be printable UTF-8 of at most %d bytes that ends in a slash",
			prefix, MaxKeyBytes)
	case prefix == "/":
		return errors.New("Prefix \"/\" would take the keys of every other user of etcd: choose one such as \"/claims/\"")
	case withinClaims(prefix) != "":
		return fmt.Errorf("Prefix %.100q lies where a client with the prefix %.100q stores the keys of its callers: "+
			"choose another", prefix, withinClaims(prefix))
	}
	return nil
}

// withinClaims returns the prefix of a client that would store its callers' keys under
// this prefix, or "". Keys that end in a caller's key are the only
// ones that can coincide with those of a client further down.
func withinClaims(prefix string) string {
	for i := 1; i < len(prefix); i++ {
		if prefix[i-1] != '/' || i == 1 {
			continue // no client's prefix ends here
		}
		for _, name := range [...]string{"own/", "note/", "work/"} {
			if strings.HasPrefix(prefix[i:], name) {
				return prefix[:i]
			}
		}
	}
	return ""
}
