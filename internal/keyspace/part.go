package keyspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// Digest returns a hash of fixed length, which stands for a name where other keys are
// stored under it: no name is then part of another's subtree.
func Digest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// Instant returns an instant as text whose order of bytes, in which etcd compares, is
// that of time.
func Instant(t time.Time) string { return fmt.Sprintf("%020d", max(t.UnixNano(), 0)) }
