package sched

import (
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// valueVersion is stored in every value, so that later versions can recognize it.
const valueVersion = 1

// spec is the value of spec/: the job as its owner registered it.
type spec struct {
	Version   int           `json:"v"`
	Group     string        `json:"group"`
	Job       string        `json:"job"`
	Schedule  string        `json:"schedule"`
	Revision  string        `json:"revision,omitempty"`
	Hash      string        `json:"hash"`
	Since     time.Time     `json:"since"` // of this revision
	Born      time.Time     `json:"born"`  // of the job
	CatchUp   string        `json:"catchUp"`
	Overlap   string        `json:"overlap"`
	Guarantee string        `json:"guarantee"`
	History   int           `json:"history,omitempty"` // 0 in values of an earlier version: the default
	Overdue   time.Duration `json:"overdue,omitempty"`
	Jitter    time.Duration `json:"jitter,omitempty"`
	Started   []string      `json:"started,omitempty"`        // the revisions whose RunOnStart was due
	Kind      string        `json:"kind,omitempty"`           // empty for a job in code
	Defined   int64         `json:"defined,string,omitempty"` // the version of the definition that was taken up
	Problem   string        `json:"problem,omitempty"`        // why the owner cannot run that
}

// inCode reports whether an owner has registered the job from code, and not by its
// definition.
func (s spec) inCode() bool { return s.Defined == 0 }

// limit returns how many records of the job are kept.
func (s spec) limit() int {
	if s.History == 0 {
		return defaultHistory
	}
	return s.History
}

// ready is the value of ready/: a tick that was admitted.
type ready struct {
	Version  int           `json:"v"`
	Job      string        `json:"job"`
	ID       string        `json:"id"`
	Nominal  time.Time     `json:"nominal"`
	Actual   time.Time     `json:"actual"`
	Attempt  int           `json:"attempt"`
	Missed   int           `json:"missed,omitempty"`
	Parallel bool          `json:"parallel,omitempty"`        // its run excludes no other, by the Overlap of the owner that admitted it
	Admitted int64         `json:"admitted,string,omitempty"` // 0 in the first put, whose revision it is
	Epoch    int64         `json:"epoch,omitempty"`           // the epoch of claims, as far as the last writer knew
	Last     *past         `json:"last,omitempty"`            // the record of the previous attempt
	Retries  int           `json:"retries,omitempty"`         // attempts by Retry, with this one
	After    time.Time     `json:"after,omitzero"`            // when this attempt can begin
	Wait     time.Duration `json:"wait,omitempty"`            // how long it waits at most
	Note     string        `json:"note,omitempty"`            // who requested it, or how the previous attempt ended
	Trace    string        `json:"trace,omitempty"`           // of who requested it
}

// firstAttempt returns a tick of the job's schedule.
func (j Job) firstAttempt(nominal time.Time) ready {
	return ready{Version: valueVersion, Job: j.Name, ID: nominalID(nominal), Nominal: nominal, Actual: j.actual(nominal), Attempt: 1, Parallel: j.parallel()}
}

// run is the value of run/: a tick that has begun. It is put once per attempt, in the
// transaction that claims the run, so its revision is that of the claim.
type run struct {
	ready
	Claim    string    `json:"claim"` // key of the run's claim
	Run      string    `json:"run"`   // the id of this attempt
	Owner    string    `json:"owner"`
	Instance string    `json:"instance"`
	Began    time.Time `json:"began"`
}

// at returns the run as it began at the revision. The tick of a run that began at once was
// admitted at that revision, too.
func (r run) at(rev int64) *run {
	if r.Admitted == 0 {
		r.Admitted = rev
	}
	return &r
}

// past is the value of past/: the record of a tick.
type past struct {
	Version  int       `json:"v"`
	Job      string    `json:"job"`
	ID       string    `json:"id"`
	Outcome  Outcome   `json:"outcome"`
	Nominal  time.Time `json:"nominal"`
	Actual   time.Time `json:"actual,omitzero"`
	Admitted int64     `json:"admitted,string,omitempty"`
	Fence    int64     `json:"fence,string,omitempty"`
	Attempt  int       `json:"attempt,omitempty"`
	Missed   int       `json:"missed,omitempty"`
	Owner    string    `json:"owner,omitempty"`
	Instance string    `json:"instance,omitempty"`
	Run      string    `json:"run,omitempty"`
	Began    time.Time `json:"began,omitzero"`
	Ended    time.Time `json:"ended"`
	Error    string    `json:"error,omitempty"`
	Again    bool      `json:"again,omitempty"` // the tick waits for another attempt
}

// at returns the last part of the record's key, which is in the order of time.
func (p past) at() string {
	id := p.Run
	if id == "" {
		id = keyspace.Digest(string(p.Outcome) + p.ID)[:16]
	}
	return keyspace.Instant(p.Ended) + "-" + id
}

// pause is the value of paused/.
type pause struct {
	Version int       `json:"v"`
	By      string    `json:"by"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
}

// cancelling is the value of cancel/, for runs that began before its revision, and of
// withdraw/, for ticks that were admitted before it.
type cancelling struct {
	Version int       `json:"v"`
	By      string    `json:"by"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
}

// resetting is the value of reset/: the mark was put back.
type resetting struct {
	cancelling
	Decided instants `json:"decided,omitempty"` // the ticks after the new mark that must not be admitted again
}

// ask is the value of ask/: RunNow, or a Backfill and its progress.
type ask struct {
	Version  int       `json:"v"`
	Job      string    `json:"job"`
	ID       string    `json:"id"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	From     time.Time `json:"from,omitzero"` // of a backfill: exclusive; advances
	To       time.Time `json:"to,omitzero"`   // inclusive
	Parallel bool      `json:"parallel,omitempty"`
	Trace    string    `json:"trace,omitempty"`
	After    string    `json:"after,omitempty"`          // the tick of the job By that has succeeded
	Defined  int64     `json:"defined,string,omitempty"` // with After: the version of the definition that runs after By; 0 for a job in code
}

func encode(v any) string { return keyspace.Encode(v) }

func decode[T any](key string, value []byte) (T, error) {
	return keyspace.Decode[T](key, value, valueVersion)
}

// limitText cuts off the text of an error at 1,024 bytes.
func limitText(s string) string {
	const most = 1024
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
