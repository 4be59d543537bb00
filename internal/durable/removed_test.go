package durable

import (
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/keyspace"
)

func TestRemovedBy(t *testing.T) {
	t.Parallel()
	on := audit.Target{Group: "g", Job: "j", Queue: "q"}
	for verb, want := range map[audit.Verb]string{
		audit.ResumeQueue:   "queue/Q/paused",
		audit.ResumeJob:     "sched/G/now/paused/J",
		audit.UndefineJob:   "sched/G/def/J sched/G/now/paused/J",
		audit.ForgetJob:     "sched/G/spec/J sched/G/def/J sched/G/now/paused/J",
		audit.RemoveGroup:   "group/G/spec",
		audit.PauseQueue:    "",
		audit.RedriveAll:    "",
		audit.EvictMember:   "",
		{Name: "of a plan"}: "",
	} {
		want = strings.NewReplacer("G", keyspace.Digest("g"), "J", keyspace.Digest("j"), "Q", keyspace.Digest("q")).Replace(want)
		if got := removedBy(audit.Record{Verb: verb.Name, Target: on}); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, want %q", verb.Name, got, want)
		}
	}
}
