package tick

import (
	"slices"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/pausing"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Halts is the directory of the pauses of many jobs.
func (k Keys) Halts() string { return k.Now() + "halt/" }

// Halt is the key of the pause of all jobs with a tag, or of all jobs of the group for the empty tag.
func (k Keys) Halt(tag string) string { return k.Halts() + keyspace.Digest(tag) }

// Unhalted is the condition that no such pause was put after the revision. The owner knows all those up to
// it, so one condition is enough for all jobs of a transaction.
func (k Keys) Unhalted(rev int64) *pb.Compare { return txn.NonePutAfter(k.Halts(), rev) }

// Halt is the value of halt/: the jobs with a tag are paused, or all jobs of the group. It stays when it has
// ended: the ticks of the pause are left out whenever an owner comes to a job.
type Halt struct {
	Pause
	Tag   string    `json:"tag,omitempty"`  // empty for all jobs
	Ended time.Time `json:"ended,omitzero"` // when an operator ended it
}

// End returns when the halt has ended, and zero while it lasts.
func (h Halt) End(now time.Time) time.Time {
	if !h.Until.IsZero() && h.Over(now) && (h.Ended.IsZero() || h.Until.Before(h.Ended)) {
		return h.Until
	}
	return h.Ended
}

// Halts are those of a group.
type Halts []Halt

// Of returns those that a job with the tags has.
func (all Halts) Of(tags []string) (of Halts) {
	for _, h := range all {
		if h.Tag == "" || slices.Contains(tags, h.Tag) {
			of = append(of, h)
		}
	}
	return of
}

// Active returns one that lasts, or nil.
func (all Halts) Active(now time.Time) *Halt {
	for i, h := range all {
		if h.End(now).IsZero() {
			return &all[i]
		}
	}
	return nil
}

// LeftOut returns up to when ticks are left out because of halts that have ended.
func (all Halts) LeftOut(now time.Time) (to time.Time) {
	for _, h := range all {
		to = Later(to, h.End(now))
	}
	return to
}

// At returns the one that has ended and was in force at an instant, or nil.
func (all Halts) At(nominal, now time.Time) *Halt {
	for i, h := range all {
		if nominal.After(h.At) && !nominal.After(h.End(now)) {
			return &all[i]
		}
	}
	return nil
}

// Scope returns what is paused, as people read it.
func (h Halt) Scope() string {
	if h.Tag == "" {
		return "the group"
	}
	return "tag " + h.Tag
}

// Text describes the halt.
func (h Halt) Text() string {
	return "paused with " + h.Scope() + " " + pausing.Text(h.By, h.At, h.Until, h.Note)
}

// Oldest returns the one that ended first, or nil if all last. The pause of the group is not among them.
func (all Halts) Oldest(now time.Time) (oldest *Halt) {
	for i, h := range all {
		if end := h.End(now); h.Tag != "" && !end.IsZero() && (oldest == nil || end.Before(oldest.End(now))) {
			oldest = &all[i]
		}
	}
	return oldest
}
