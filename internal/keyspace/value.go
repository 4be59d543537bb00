package keyspace

import (
	"bytes"
	"encoding/json"
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

// Decode returns the value stored under a key. It refuses one of a later version than the
// program knows.
func Decode[T any](key string, value []byte, version int) (v T, err error) {
	var head struct {
		Version int `json:"v"`
	}
	if !bytes.HasPrefix(value, []byte(`{"v":1,`)) { // as Encode writes it
		err = json.Unmarshal(value, &head)
	}
	switch {
	case err == nil && head.Version > version:
		err = fmt.Errorf("version %d is newer than version %d of this package", head.Version, version)
	case err == nil:
		err = json.Unmarshal(value, &v)
	}
	if err != nil {
		return v, fmt.Errorf("the value of %s cannot be read: %w", key, err)
	}
	return v, nil
}
