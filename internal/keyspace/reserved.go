// Package keyspace is what claims, guards and schedules must agree on: where
// claims stand in etcd, what a fence is made of, and which part of the key space
// claims keep to themselves.
package keyspace

import "strings"

// open are the subtrees of a prefix in which schedules and queues, which are
// built on claims, keep what they write under a claim's guard. No claim, and no
// guard, stands there.
var open = [...]string{"sched/", "queue/"}

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

// RangeEnd is the first key after all that have the prefix.
func RangeEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return "\x00"
}
