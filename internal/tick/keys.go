package tick

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Keys are the keys of a group in etcd. Names are digests, so that no key is part
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
//	now/heir/<instance>     a request for the owner: to hand the ownership over
//	now/paused/<job>        the job is paused, by whom and why
//	now/halt/<tag>          the jobs with a tag are paused, or all jobs of the group
//	now/cancel/<job>        runs that began before this key must end
//	now/cancel/<job>/newer  the same, except for backfills with Allow
//	now/withdraw/<job>      ticks admitted before this key must not begin
//	now/reset/<job>         the mark was put back, by whom and why, and which ticks after it are decided
//	now/stuck/<job>/<id>    a handler did not return after its context ended
//	now/ready/<job>/<id>    a tick that was admitted and has not begun
//	now/run/<job>/<id>      a tick that has begun
//	now/slot/<limit>/<n>    a slot of a limit, and the run that has it
//
// Backfills have directories of their own beside the job's, so that they do not count
// as waiting ticks. Everything in progress has one prefix, for one watch.
type Keys struct{ Prefix, Group, root string }

// NewKeys returns the keys of a group of a client with the prefix.
func NewKeys(prefix, group string) Keys {
	return Keys{Prefix: prefix, Group: group, root: prefix + "sched/" + keyspace.Digest(group) + "/"}
}

// KeysUnder returns the keys of the group whose keys have the prefix, without those of claims.
func KeysUnder(root string) Keys { return Keys{root: root} }

// Definitions is the directory of all definitions of jobs.
func (k Keys) Definitions() string { return k.root + "def/" }

// Definition is the key of the definition of a job.
func (k Keys) Definition(j string) string { return k.Definitions() + keyspace.Digest(j) }

// AllDefined is the directory of Defined.
func (k Keys) AllDefined() string { return k.Now() + "defined/" }

// Defined is the key of the notice that a job is defined.
func (k Keys) Defined(job string) string { return k.AllDefined() + keyspace.Digest(job) }

// Specs is the directory of all specifications.
func (k Keys) Specs() string { return k.root + "spec/" }

// Spec is the key of the specification of a job.
func (k Keys) Spec(job string) string { return k.Specs() + keyspace.Digest(job) }

// Highs is the directory of all high-water marks.
func (k Keys) Highs() string { return k.root + "high/" }

// High is the key of the high-water mark of a job.
func (k Keys) High(job string) string { return k.Highs() + keyspace.Digest(job) }

// AllRecords is the directory of the records of all jobs.
func (k Keys) AllRecords() string { return k.root + "past/" }

// Records is the directory of the records of a job.
func (k Keys) Records(job string) string { return k.AllRecords() + keyspace.Digest(job) + "/" }

// Fails is the directory of all counts of failures.
func (k Keys) Fails() string { return k.root + "fail/" }

// Fail is the key of the count of failures of a job.
func (k Keys) Fail(job string) string { return k.Fails() + keyspace.Digest(job) }

// Now is the directory of everything in progress.
func (k Keys) Now() string { return k.root + "now/" }

// Asks is the directory of all requests for the owner.
func (k Keys) Asks() string { return k.Now() + "ask/" }

// AsksOf is the directory of those for a job.
func (k Keys) AsksOf(job string) string { return k.Asks() + keyspace.Digest(job) + "/" }

// Ask returns the operation that requests a tick of the job.
func (k Keys) Ask(job, id, value string) *pb.RequestOp {
	return txn.Put([]byte(k.AsksOf(job)+id), value, noLease)
}

// Heir is the key of the request of a client that the owner hands the ownership over.
func (k Keys) Heir(instance string) string { return k.Now() + "heir/" + instance }

// AllPaused is the directory of the pauses of jobs.
func (k Keys) AllPaused() string { return k.Now() + "paused/" }

// Paused is the key of the pause of a job.
func (k Keys) Paused(job string) string { return k.AllPaused() + keyspace.Digest(job) }

// Cancels is the directory of Cancel and Newer.
func (k Keys) Cancels() string { return k.Now() + "cancel/" }

// Cancel is the key of the request that the runs of a job end.
func (k Keys) Cancel(job string) string { return k.Cancels() + keyspace.Digest(job) }

// Newer is the key of the request by a newer tick that they end.
func (k Keys) Newer(job string) string { return k.Cancel(job) + "/newer" }

// Withdraw is the key of the request that waiting ticks of a job do not begin.
func (k Keys) Withdraw(job string) string { return k.Now() + "withdraw/" + keyspace.Digest(job) }

// Reset is the key that tells that the mark of a job was put back.
func (k Keys) Reset(job string) string { return k.Now() + "reset/" + keyspace.Digest(job) }

// Stuck is the key of the note about a handler that does not return.
func (k Keys) Stuck(job, id string) string { return k.Now() + "stuck/" + place(job, id) }

// Readies is the directory of all waiting ticks.
func (k Keys) Readies() string { return k.Now() + "ready/" }

// Runs is the directory of all runs.
func (k Keys) Runs() string { return k.Now() + "run/" }

// Ready is the key of a waiting tick.
func (k Keys) Ready(job, id string) string { return k.Readies() + place(job, id) }

// Run is the key of a run.
func (k Keys) Run(job, id string) string { return k.Runs() + place(job, id) }

// ReadyOf is the directory of the waiting ticks of a job, without those of backfills.
func (k Keys) ReadyOf(job string) string { return k.Readies() + keyspace.Digest(job) + "/" }

// RunOf is the directory of the runs of a job, without those of backfills.
func (k Keys) RunOf(job string) string { return k.Runs() + keyspace.Digest(job) + "/" }

// Entry is the key of a record.
func (k Keys) Entry(job string, p Past) string { return k.Records(job) + p.at() }

// Backfills is, like Backfilling, the directory of the waiting ticks of the job's
// backfills.
func (k Keys) Backfills(job string) string {
	return k.Readies() + keyspace.Digest(job) + BackfillDir + "/"
}

// Backfilling is that of their runs.
func (k Keys) Backfilling(job string) string {
	return k.Runs() + keyspace.Digest(job) + BackfillDir + "/"
}

// Concern returns the name of what a begin or an end concerns: such transactions share a
// round trip unless they have one name. It is the job, because runs of most jobs exclude each
// other, or a tick if what is done about others of its job makes no difference to it.
func (k Keys) Concern(job, id string, alone bool) string {
	if alone {
		return k.root + place(job, id)
	}
	return k.root + keyspace.Digest(job)
}

// BackfillDir follows the digest of a job in the directories of its backfills.
const BackfillDir = ".backfill"

// place returns the key of a tick below ready/ and run/.
func place(job, id string) string {
	if IsBackfill(id) {
		return keyspace.Digest(job) + BackfillDir + "/" + id
	}
	return keyspace.Digest(job) + "/" + id
}

// The keys of claims. The name of a group has no slash, and the word after it differs,
// so no two of these keys are equal.

// OwnerClaim is the key that the owner of a group claims.
func OwnerClaim(group string) string { return "sched/" + group + "/owner" }

// OpClaim is the key that an operation on a group claims.
func OpClaim(group, id string) string { return "sched/" + group + "/op/" + id }

// JobClaim is the key that the runs of a job claim if they exclude each other.
func JobClaim(group, job string) string { return "sched/" + group + "/job/" + job }

// RunClaim is the key that a run claims: that of the job if its runs exclude each other, and
// otherwise a key of the tick.
func RunClaim(group, job, id string, exclusive bool) string {
	if exclusive {
		return JobClaim(group, job)
	}
	return "sched/" + group + "/run/" + strings.ReplaceAll(id, "/", "-") + "/" + job
}

// own is the key in etcd of a claim.
func (k Keys) own(claim string) string { return keyspace.Own(k.Prefix, claim) }

// Instant decodes the value of a high-water mark; see keyspace.Instant.
func Instant(value []byte) (time.Time, error) {
	var n int64
	if len(value) != 20 {
		return time.Time{}, fmt.Errorf("%q is not a time of 20 digits", value)
	}
	if _, err := fmt.Sscanf(string(value), "%020d", &n); err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time of 20 digits: %w", value, err)
	}
	return time.Unix(0, n).UTC(), nil
}
