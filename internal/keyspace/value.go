package keyspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Encode returns the stored form of a value: a struct of strings, numbers and times, whose
// first field is its version.
func Encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("etcdclaims: a %T cannot be encoded: %v", v, err))
	}
	return string(b)
}

// newerError refuses a value of a later version.
type newerError struct{ has, known int }

func (e newerError) Error() string {
	return fmt.Sprintf("written by a newer version: version %d is newer than version %d of this package", e.has, e.known)
}

// Newer returns an error if a value has a later version than the program knows.
func Newer(has, known int) error {
	if has <= known {
		return nil
	}
	return newerError{has, known}
}

// IsNewer reports whether Decode or Newer has refused a value because of its version.
func IsNewer(err error) bool {
	_, ok := errors.AsType[newerError](err)
	return ok
}

// Decode returns the value stored under a key. It refuses one of a later version than the
// program knows: see IsNewer.
func Decode[T any](key string, value []byte, version int) (v T, err error) {
	var head struct {
		Version int `json:"v"`
	}
	if !bytes.HasPrefix(value, []byte(`{"v":1,`)) { // as Encode writes it
		err = json.Unmarshal(value, &head)
	}
	if err == nil {
		err = Newer(head.Version, version)
	}
	if err == nil {
		err = json.Unmarshal(value, &v)
	}
	if err != nil {
		return v, fmt.Errorf("the value of %s cannot be read: %w", key, err)
	}
	return v, nil
}
