package keyspace_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/keyspace"
)

func TestDecodeVersions(t *testing.T) {
	t.Parallel()
	type value struct {
		Version int    `json:"v"`
		Name    string `json:"name"`
	}
	for text, want := range map[string]struct{ fails, newer bool }{
		`{"v":1,"name":"a"}`:  {},
		`{ "v":1,"name":"a"}`: {},
		`{"name":"a"}`:        {},
		`{"v":2,"name":"a"}`:  {true, true},
		`{"v":2,"name":[1]}`:  {true, true}, // whatever else it has
		`{"v":1,"name":[1]}`:  {true, false},
		`{"v":"2"}`:           {true, false},
		`{"v":2`:              {true, false},
	} {
		v, err := keyspace.Decode[value]("k", []byte(text), 1)
		if (err != nil) != want.fails || keyspace.IsNewer(err) != want.newer || err == nil && v.Name != "a" {
			t.Errorf("%s: %+v, %v, newer %v", text, v, err, keyspace.IsNewer(err))
		}
	}
}
