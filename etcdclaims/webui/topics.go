package webui

import (
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/explain"
)

// The names of snapshots that more than one page shows, or that change before they are due.
const (
	statusTopic   = "status"   // every page shows it
	membersTopic  = "members"  // it is read again as soon as an outage begins or ends
	doctorTopic   = "doctor"   // what an examination has found
	samplesTopic  = "samples"  // changes when there is another sample
	linesTopic    = "lines"    // all lines
	queuesTopic   = "queues"   // the counts of all queues
	sessionsTopic = "sessions" // all sessions
)

// keyTopic is the snapshot of a key.
func keyTopic(key string) string { return "key " + key }

// ofKey returns the key that has the given one as a slot, or that its holder shares, as
// far as its name shows that. It returns "" for any other key.
func ofKey(key string) string {
	if whole := explain.WholeOf(key); whole != "" {
		return whole
	}
	return key[:max(strings.LastIndex(key, etcdclaims.SharedPrefix("")), 0)]
}
