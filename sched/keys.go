package sched

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// keys returns the keys of a group in etcd. Names are digests, so that no key is part
// of another's subtree. The kind comes before the job, so that one range returns all
// keys of a kind:
//
//	def/<job>               the definition of the job, if it is defined in etcd
//	spec/<job>              the specification of the job
//	high/<job>              its high-water mark
//	past/<job>/<time>-<id>  the records of its ticks
//	fail/<job>              how many of its runs failed in a row
//	now/defined/<job>       the job is defined; put with its definition
//	now/ask/<job>/<uuid>    a request for the owner: RunNow or Backfill
//	now/paused/<job>        the job is paused, by whom and why
//	now/cancel/<job>        runs that began before this key must end
//	now/cancel/<job>/newer  the same, except for backfills with Allow
//	now/withdraw/<job>      ticks admitted before this key must not begin
//	now/reset/<job>         the mark was put back, by whom and why, and which ticks after it are decided
//	now/stuck/<job>/<id>    a handler did not return after its context ended
//	now/ready/<job>/<id>    a tick that was admitted and has not begun
//	now/run/<job>/<id>      a tick that has begun
//
// Backfills have directories of their own beside the job's, so that they do not count
// as waiting ticks. Everything in progress has one prefix, for one watch.
type keys struct{ root string }

func newKeys(prefix, group string) keys {
	return keys{prefix + "sched/" + keyspace.Digest(group) + "/"}
}

func (k keys) definitions() string        { return k.root + "def/" }
func (k keys) definition(j string) string { return k.definitions() + keyspace.Digest(j) }
func (k keys) allDefined() string         { return k.now() + kindDefined + "/" }
func (k keys) defined(job string) string  { return k.allDefined() + keyspace.Digest(job) }
func (k keys) specs() string              { return k.root + "spec/" }
func (k keys) spec(job string) string     { return k.specs() + keyspace.Digest(job) }
func (k keys) highs() string              { return k.root + "high/" }
func (k keys) high(job string) string     { return k.highs() + keyspace.Digest(job) }
func (k keys) past(job string) string     { return k.root + "past/" + keyspace.Digest(job) + "/" }
func (k keys) fails() string              { return k.root + "fail/" }
func (k keys) fail(job string) string     { return k.fails() + keyspace.Digest(job) }
func (k keys) now() string                { return k.root + "now/" }
func (k keys) asks() string               { return k.now() + "ask/" }
func (k keys) asksOf(job string) string   { return k.asks() + keyspace.Digest(job) + "/" }
func (k keys) paused(job string) string   { return k.now() + "paused/" + keyspace.Digest(job) }
func (k keys) cancels() string            { return k.now() + "cancel/" }
func (k keys) cancel(job string) string   { return k.cancels() + keyspace.Digest(job) }
func (k keys) newer(job string) string    { return k.cancel(job) + "/newer" }
func (k keys) withdraw(job string) string { return k.now() + kindWithdraw + "/" + keyspace.Digest(job) }

func (k keys) reset(job string) string         { return k.now() + kindReset + "/" + keyspace.Digest(job) }
func (k keys) stuck(job, id string) string     { return k.now() + kindStuck + "/" + place(job, id) }
func (k keys) readies() string                 { return k.now() + "ready/" }
func (k keys) runs() string                    { return k.now() + "run/" }
func (k keys) ready(job, id string) string     { return k.readies() + place(job, id) }
func (k keys) run(job, id string) string       { return k.runs() + place(job, id) }
func (k keys) readyOf(job string) string       { return k.readies() + keyspace.Digest(job) + "/" }
func (k keys) runOf(job string) string         { return k.runs() + keyspace.Digest(job) + "/" }
func (k keys) entry(job string, e past) string { return k.past(job) + e.at() }

// backfills and backfilling are the directories of the waiting and running ticks of
// the job's backfills.
func (k keys) backfills(job string) string {
	return k.readies() + keyspace.Digest(job) + backfillDir + "/"
}

func (k keys) backfilling(job string) string {
	return k.runs() + keyspace.Digest(job) + backfillDir + "/"
}

// concern returns the name of what a begin or an end concerns: such transactions share a
// round trip unless they have one name. It is the job, because runs of most jobs exclude each
// other, or a tick if what is done about others of its job makes no difference to it.
func (k keys) concern(job, id string, alone bool) string {
	if alone {
		return k.root + place(job, id)
	}
	return k.root + keyspace.Digest(job)
}

const backfillDir = ".backfill"

// place returns the key of a tick below ready/ and run/.
func place(job, id string) string {
	if isBackfill(id) {
		return keyspace.Digest(job) + backfillDir + "/" + id
	}
	return keyspace.Digest(job) + "/" + id
}

// The keys of claims. The name of a group has no slash, and the word after it differs,
// so no two of these keys are equal.

func ownerKey(group string) string { return "sched/" + group + "/owner" }

func opKey(group, id string) string { return "sched/" + group + "/op/" + id }

func jobKey(group, job string) string { return "sched/" + group + "/job/" + job }

// claimKey returns the key that a run claims: the key of the job if its runs exclude
// each other, and otherwise a key of the tick.
func claimKey(group, job, id string, exclusive bool) string {
	if exclusive {
		return jobKey(group, job)
	}
	return "sched/" + group + "/run/" + strings.ReplaceAll(id, "/", "-") + "/" + job
}

func dec(s []byte) (time.Time, error) {
	var n int64
	if len(s) != 20 {
		return time.Time{}, fmt.Errorf("%q is not a time of 20 digits", s)
	}
	if _, err := fmt.Sscanf(string(s), "%020d", &n); err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time of 20 digits: %w", s, err)
	}
	return time.Unix(0, n).UTC(), nil
}
