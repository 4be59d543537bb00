package tick

import (
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The values of Following.AfterOn. Empty means success.
const (
	OnFailure = "failure"
	OnEnd     = "end"
)

// Following is after which jobs a job runs, and how those must have ended. The zero Following
// is of a job with a schedule.
type Following struct {
	After    string   `json:"after,omitempty"`    // one job
	AfterAll []string `json:"afterAll,omitempty"` // or several: all of them have ended for one nominal time
	AfterOn  string   `json:"afterOn,omitempty"`
}

// Jobs returns the names of the jobs.
func (f Following) Jobs() []string {
	if f.After != "" {
		return []string{f.After}
	}
	return f.AfterAll
}

// Joins reports whether the job runs after several others.
func (f Following) Joins() bool { return len(f.AfterAll) > 0 }

// Has reports whether the job runs after another one.
func (f Following) Has(job string) bool { return slices.Contains(f.Jobs(), job) }

// Names returns the names of the jobs as people read them.
func (f Following) Names() string { return strings.Join(f.Jobs(), ", ") }

// Wants reports whether the job runs if its jobs have ended, and whether one of them without success.
func (f Following) Wants(failed bool) bool {
	return f.AfterOn == OnEnd || failed == (f.AfterOn == OnFailure)
}

// Join identifies several jobs and how they must have ended. It is empty of one job.
func (f Following) Join() string {
	if !f.Joins() {
		return ""
	}
	return keyspace.Digest(f.AfterOn + " " + f.Names())[:16]
}

// Outdated reports whether the request was made for another version of the job: it is of another job, another
// join, or another end than this one runs after.
func (f Following) Outdated(a Ask) bool {
	switch {
	case a.After == "":
		return false
	case a.Join != "" && a.Join != f.Join():
		return true
	case a.Defined == 0 && !f.Joins():
		return false
	}
	return !f.Has(a.By) || !f.Joins() && !f.Wants(a.Failed)
}

// Condition describes when the job runs.
func (f Following) Condition() string {
	switch {
	case !f.Joins() && f.AfterOn == "":
		return f.After + " has succeeded"
	case !f.Joins() && f.AfterOn == OnFailure:
		return f.After + " has ended without success"
	case !f.Joins():
		return f.After + " has ended"
	case f.AfterOn == "":
		return f.Names() + " have all succeeded"
	case f.AfterOn == OnFailure:
		return f.Names() + " have all ended, and one without success"
	}
	return f.Names() + " have all ended"
}

// Joined decides about the ends of jobs for one nominal time, in the order in which they were
// requested. It returns the newest end of each job that the job runs after, in their order, and
// whether there is one of each; and whether the job then runs.
func (f Following) Joined(ends []Ask) (newest []Ask, complete, runs bool) {
	failed := false
	for _, job := range f.Jobs() {
		last := -1
		for i, a := range ends {
			if a.By == job {
				last = i
			}
		}
		if last < 0 {
			continue
		}
		newest = append(newest, ends[last])
		failed = failed || ends[last].Failed
	}
	complete = len(newest) == len(f.Jobs())
	return newest, complete, complete && f.Wants(failed)
}

// Follower is a job that runs after another one, as far as a process knows that that has ended.
type Follower struct {
	Following
	Job     string
	Defined int64 // the version of its definition; 0 for a job in code
}

// Followers returns the jobs that run after a job. It is called if a tick of that has ended.
type Followers func(job string) []Follower

// Follow returns the operations that request ticks after those of the job whose records they are
// added with. A tick that has not begun, or has another attempt, has not ended. With nil followers it
// returns none.
func (k Keys) Follow(job string, followers Followers, records ...Past) (ops []*pb.RequestOp) {
	for _, p := range records {
		failed := p.Outcome != OK
		if p.Attempt == 0 || p.Again || followers == nil {
			continue
		}
		a := Ask{Version: Version, ID: p.Run, By: job, At: p.Nominal, After: p.ID, Failed: failed}
		for _, f := range followers(job) {
			if !f.Joins() && !f.Wants(failed) {
				continue
			}
			if a.ID == "" { // the tick waited for another attempt
				a.ID = p.at() + "-" + keyspace.Digest(job)[:16]
			}
			a.Job, a.Defined, a.Join = f.Job, f.Defined, f.Join()
			put := k.Ask(f.Job, a.ID, Encode(a))
			if f.Defined == 0 {
				ops = append(ops, put)
				continue
			}
			is := txn.CreatedAfter([]byte(k.Definition(f.Job)), 0)
			ops = append(ops, txn.Nest(&pb.TxnRequest{Compare: []*pb.Compare{is}, Success: []*pb.RequestOp{put}}))
		}
	}
	return ops
}
