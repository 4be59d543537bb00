package keyspace

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"time"
)

// Digest returns a hash of fixed length, which stands for a name where other keys are
// stored under it: no name is then part of another's subtree.
func Digest(name string) string {
	text := DigestText(name)
	return string(text[:])
}

// DigestText is Digest as an array, for a key that is put together at once.
func DigestText(name string) (text [32]byte) {
	sum := sha256.Sum256([]byte(name))
	hex.Encode(text[:], sum[:16])
	return text
}

// Instant returns an instant as text whose order of bytes, in which etcd compares, is
// that of time. Those before 1970 are as 1970, and those from 2262 on are all the same.
func Instant(t time.Time) string {
	digits := strconv.FormatInt(Nanos(t), 10)
	return "00000000000000000000"[len(digits):] + digits
}

// Nanos returns the nanoseconds from 1970 to an instant, with the bounds of Instant.
func Nanos(t time.Time) int64 {
	switch seconds := t.Unix(); {
	case seconds >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	case seconds >= 0:
		return t.UnixNano()
	}
	return 0
}
