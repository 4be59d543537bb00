package keyspace_test

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
)

// A key that can be claimed can be sent as a token.
func TestLongestKeyIsThatOfTokens(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("k", keyspace.MaxKeyBytes)
	if err := (fencing.Token{Key: key, Fence: 1}).Validate(); err != nil {
		t.Error(err)
	}
	if (fencing.Token{Key: key + "k", Fence: 1}).Validate() == nil {
		t.Error("a token has a longer key than any claim")
	}
}
