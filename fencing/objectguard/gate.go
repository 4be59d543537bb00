package objectguard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/etcdclaims/claims/fencing"
)

// Gate is a fencing.Gate that remembers the newest fence of each key in an object
// of its own, a few hundred bytes each, for good. It survives restarts and is
// shared by all who have the store and the prefix.
//
// It is apart from any effect, so it guarantees less than an [Object]: what it
// admitted can be delayed, and take effect after a newer owner was admitted. It
// serves to seal something of which the fence cannot be part, and to reject
// early. Admitting a token costs a read, and a write if it is newer.
type Gate struct {
	store  Store
	prefix string
}

// NewGate returns a gate whose objects' names are the prefix and 64 hexadecimal
// digits: a digest of the key, since names of objects cannot be all that keys can.
// It sends nothing.
func NewGate(store Store, prefix string) (*Gate, error) {
	if err := valid(store, "prefix", prefix, hex.EncodedLen(sha256.Size)); err != nil {
		return nil, err
	}
	return &Gate{store, prefix}, nil
}

// Admit is Gate's of package fencing. It is safe for concurrent use; see [Object]
// for what else it may return.
func (g *Gate) Admit(ctx context.Context, t fencing.Token) error {
	digest := sha256.Sum256([]byte(t.Key))
	mark := Object{store: g.store, name: g.prefix + hex.EncodeToString(digest[:])}
	return mark.Admit(ctx, t)
}
