package objectguard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/etcdclaims/claims/fencing"
)

// Gate is a fencing.Gate that stores the newest fence of each key in an object of
// its own. An object has a few hundred bytes and is never deleted. The gate
// survives restarts, and is shared by all processes with the same store and
// prefix. It is safe for concurrent use.
//
// The gate is apart from any effect, so it guarantees less than an [Object]. A
// request that it admitted can be delayed, and take effect after a newer owner
// was admitted. Use it to seal a resource that cannot store the fence itself, and
// as an early reject.
//
// Admitting a token takes one read, and one write if the token is newer.
type Gate struct {
	store  Store
	prefix string
}

// NewGate returns a Gate. The names of its objects are the prefix and 64 hexadecimal
// digits, a digest of the key: keys can have characters that object names cannot have.
// NewGate sends nothing. It returns an error if store is nil or the prefix cannot be used.
func NewGate(store Store, prefix string) (*Gate, error) {
	if err := valid(store, "prefix", prefix, hex.EncodedLen(sha256.Size)); err != nil {
		return nil, err
	}
	return &Gate{store, prefix}, nil
}

// Admit implements fencing.Gate. See [Object] for the other errors that it
// returns.
func (g *Gate) Admit(ctx context.Context, t fencing.Token) error {
	digest := sha256.Sum256([]byte(t.Key))
	mark := Object{store: g.store, name: g.prefix + hex.EncodeToString(digest[:])}
	return mark.Admit(ctx, t)
}
