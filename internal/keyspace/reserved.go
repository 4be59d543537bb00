// Package keyspace is what claims, guards and schedules must agree on: where
// claims stand in etcd, what a fence is made of, and which part of the key space
// claims keep to themselves.
package keyspace

import (
	"fmt"
	"strings"
)

// open are the subtrees of a prefix in which schedules, queues and records of operators, which are
// built on claims, keep what they write under a claim's guard. No claim, and no
// guard, stands there.
var open = [...]string{"sched/", "queue/", "audit/"}

// Reserved reports whether an operation on [key, end), with the end as etcd has
// it, would touch what stands under the prefix and belongs to claims alone.
func Reserved(prefix, key, end string) bool {
	for _, name := range open {
		if subtree := prefix + name; strings.HasPrefix(key, subtree) && (end == "" || end != "\x00" && end <= RangeEnd(subtree)) {
			return false
		}
	}
	switch end {
	case "": // the key alone
		return strings.HasPrefix(key, prefix)
	case "\x00": // from key on
		return key < RangeEnd(prefix)
	}
	return key < RangeEnd(prefix) && end > prefix
}

// What stands between a key and the number of its slot, and between a key and the id of a
// shared claim.
const (
	SlotSuffix   = "#slot-"
	SharedSuffix = "#shared-"
)

// features have claims on keys that begin with their word.
var features = [...]struct{ word, name string }{{"sched/", "schedulers"}, {"queue/", "queues"}, {"group/", "groups"}}

// FeatureOf returns the feature that a key is kept for, such as "queues", or "".
func FeatureOf(key string) string {
	for _, f := range features {
		if strings.HasPrefix(key, f.word) {
			return f.name
		}
	}
	return ""
}

// Unclaimable returns why callers must not claim a key, and what to do instead, or "". A claim of
// theirs would stop the feature that the key is kept for, for good.
func Unclaimable(key string) string {
	if strings.TrimSpace(key) == "" {
		return "it is blank"
	}
	for _, f := range features {
		if strings.HasPrefix(key, f.word) {
			return fmt.Sprintf("%q is kept for %s: begin the key with another word than %q; "+
				"ForceRelease ends a claim of theirs", key, f.name, f.word)
		}
	}
	if of, _, found := strings.Cut(key, SlotSuffix); found {
		return fmt.Sprintf("%q is kept for a slot: acquire %q with Slots; ForceRelease of the SlotKey frees one slot", key, of)
	}
	if of, _, found := strings.Cut(key, SharedSuffix); found {
		return fmt.Sprintf("%q is kept for a shared claim: acquire %q with Shared; ForceRelease of that key ends its claims", key, of)
	}
	return ""
}

// RangeEnd is the first key after all that have the prefix.
func RangeEnd(prefix string) string { return string(EndOf([]byte(prefix))) }

// EndOf is RangeEnd in place of the prefix.
func EndOf(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			prefix[i]++
			return prefix[:i+1]
		}
	}
	return []byte{0}
}
