package keyspace

import (
	"fmt"
	"strconv"
)

// DefaultPrefix is where claims are stored unless their configuration says
// otherwise.
const DefaultPrefix = "/etcdclaims/"

// EpochShift is where a fence has its epoch, above a revision of etcd. It leaves 47
// bits for the revision: at 100,000 writes a second, they last 44 years.
const EpochShift = 47

// MaxEpoch is the greatest epoch that a fence has room for.
const MaxEpoch = 1<<(63-EpochShift) - 1

// ParseEpoch reads the value of the epoch's key. Bearers of tokens compare its text, so each
// epoch is written in one way.
func ParseEpoch(value string) (epoch int64, ok bool) {
	v, err := strconv.ParseInt(value, 10, 64)
	return v, err == nil && v >= 1 && v <= MaxEpoch && strconv.FormatInt(v, 10) == value
}

// StoredEpoch reads the epoch's key.
func StoredEpoch(key, value []byte) (int64, error) {
	v, ok := ParseEpoch(string(value))
	if !ok {
		return 0, fmt.Errorf("etcdclaims: key %q must be a number from 1 to %d without zeros before it, it is %.40q: correct it",
			key, MaxEpoch, value)
	}
	return v, nil
}

// Fence is that of a claim that was put at a revision, under an epoch.
func Fence(epoch, rev int64) int64 { return epoch<<EpochShift + rev }

// Epoch returns the epoch of a fence.
func Epoch(fence int64) int64 { return fence >> EpochShift }

// Revision returns the part of a fence that etcd compares.
func Revision(fence int64) int64 { return fence & (1<<EpochShift - 1) }

// Own is the key of the claim on a user's key.
func Own(prefix, key string) string { return prefix + "own/" + key }

// Work is the key of the record of work.
func Work(prefix, key string) string { return prefix + "work/" + key }

// SlotFamily is the name that all slots of a key have in common, by which their line
// goes. A user's key has no control characters.
func SlotFamily(key string) string { return key + "\x00slots" }

// EpochKey is the key of the epoch.
func EpochKey(prefix string) string { return prefix + "epoch" }
