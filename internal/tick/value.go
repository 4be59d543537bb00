package tick

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/pausing"
)

// Version is stored in every value, so that later versions can recognize it.
const Version = 1

// Ready is the value of ready/: a tick that was admitted.
type Ready struct {
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
	Last     *Past         `json:"last,omitempty"`            // the record of the previous attempt
	Retries  int           `json:"retries,omitempty"`         // attempts by Retry, with this one
	After    time.Time     `json:"after,omitzero"`            // when this attempt can begin
	Wait     time.Duration `json:"wait,omitempty"`            // how long it waits at most
	Note     string        `json:"note,omitempty"`            // who requested it, or how the previous attempt ended
	Trace    string        `json:"trace,omitempty"`           // of who requested it
	// Payload is that of the request, JSON.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Rests returns how long a tick still waits for its next attempt.
func (r Ready) Rests(now time.Time) time.Duration {
	if r.After.IsZero() {
		return 0
	}
	return min(r.After.Sub(now), r.Wait)
}

// Run is the value of run/: a tick that has begun. It is put once per attempt, in the
// transaction that claims the run, so its revision is that of the claim.
type Run struct {
	Ready
	Claim    string    `json:"claim"` // key of the run's claim
	Run      string    `json:"run"`   // the id of this attempt
	Owner    string    `json:"owner"`
	Instance string    `json:"instance"`
	Began    time.Time `json:"began"`
	// Slots has the number of the slot that the run has of each of its limits.
	Slots map[string]int `json:"slots,omitempty"`
}

// At returns the run as it began at the revision. The tick of a run that began at once was
// admitted at that revision, too.
func (r Run) At(rev int64) *Run {
	if r.Admitted == 0 {
		r.Admitted = rev
	}
	return &r
}

// Past returns the record of a run, without its outcome.
func (r Run) Past() Past {
	return Past{
		Version: Version, Job: r.Job, ID: r.ID, Nominal: r.Nominal, Actual: r.Actual, Admitted: r.Admitted, Attempt: r.Attempt,
		Missed: r.Missed, Owner: r.Owner, Instance: r.Instance, Run: r.Run, Began: r.Began,
	}
}

// Past is the value of past/: the record of a tick.
type Past struct {
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
func (p Past) at() string {
	id := p.Run
	if id == "" {
		id = keyspace.Digest(string(p.Outcome) + p.ID)[:16]
	}
	return keyspace.Instant(p.Ended) + "-" + id
}

// Failed reports whether the record is that of a tick that failed for good: its last attempt
// failed, or its next one was late or replaced. A tick that an operator takes back between two
// attempts has not failed.
func (p Past) Failed() bool {
	switch p.Outcome {
	case Late, Skipped:
		return p.Attempt > 0
	}
	return p.Outcome.Bad() && !p.Again
}

// Outcome is what happened to a tick. Package sched documents its values.
type Outcome string

// The outcomes that the steps know.
const (
	OK        Outcome = "ok"
	Failed    Outcome = "failed"
	Timeout   Outcome = "timeout"
	Cancelled Outcome = "cancelled"
	Lost      Outcome = "lost"
	Skipped   Outcome = "skipped"
	Late      Outcome = "late"
	Missed    Outcome = "missed"
)

// Bad reports whether the outcome counts for PauseOnFailure.
func (o Outcome) Bad() bool { return o == Failed || o == Timeout }

// Pause is the value of paused/.
type Pause struct {
	Version int       `json:"v"`
	By      string    `json:"by"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
	Until   time.Time `json:"until,omitzero"` // when it ends by itself; zero for never
}

// Over reports whether the pause has ended by itself: what remains is that the owner resumes the job.
func (p Pause) Over(now time.Time) bool { return pausing.Over(p.Until, now) }

// Text describes the pause.
func (p Pause) Text() string { return "paused " + pausing.Text(p.By, p.At, p.Until, p.Note) }

// Cancelling is the value of cancel/, for runs that began before its revision, and of
// withdraw/, for ticks that were admitted before it.
type Cancelling struct {
	Version int       `json:"v"`
	By      string    `json:"by"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
}

// Explain adds to the error of a record that the tick was cancelled.
func (c Cancelling) Explain(text string) string {
	return LimitText(strings.TrimPrefix(text+"; cancelled by "+c.By+": "+c.Note, "; "))
}

// Ask is the value of now/ask/: RunNow, or a Backfill and its progress.
type Ask struct {
	Version  int             `json:"v"`
	Job      string          `json:"job"`
	ID       string          `json:"id"`
	By       string          `json:"by"`
	At       time.Time       `json:"at"`
	From     time.Time       `json:"from,omitzero"` // of a backfill: exclusive; advances
	To       time.Time       `json:"to,omitzero"`   // inclusive
	Parallel bool            `json:"parallel,omitempty"`
	Trace    string          `json:"trace,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	After    string          `json:"after,omitempty"`  // the tick of the job By that has ended
	Failed   bool            `json:"failed,omitempty"` // with After: it ended without success
	Join     string          `json:"join,omitempty"`   // with After: the Following.Join of the job
	// Defined is, with After, the version of the definition that runs after By; 0 for a job in code.
	Defined int64 `json:"defined,string,omitempty"`
}

// Notice is the value of now/defined/: a job is defined. It is put with the definition, so
// both have the same revision. Processes follow the notices, which are short, and read the
// definitions that are new to them.
type Notice struct {
	Version int    `json:"v"`
	Job     string `json:"job"`
	Following
}

// Stuck is the value of now/stuck/: a handler did not return after its context ended.
// Without it, the owner that settles the run would assume that its process died.
type Stuck struct {
	Version int           `json:"v"`
	Run     string        `json:"run"`
	Cause   string        `json:"cause"`
	Timeout time.Duration `json:"timeout,omitempty"`
}

// LimitText cuts off the text of an error at 1,024 bytes.
func LimitText(s string) string {
	const most = 1024
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Encode returns a value as it is stored.
func Encode(v any) string { return keyspace.Encode(v) }

// Decode returns the value that is stored under a key.
func Decode[T any](key string, value []byte) (T, error) {
	return keyspace.Decode[T](key, value, Version)
}

// The prefixes of the ids of manual ticks. Other ids are nominal times, whose keys in
// etcd are in the order of time.
const (
	ManualID   = "manual/"
	BackfillID = "backfill/"
	StartID    = "start/"
	AfterID    = "after/" // before the id of the tick whose success it follows
)

// NominalID returns the id of a tick of a schedule.
func NominalID(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// IsBackfill reports whether the id is that of a tick of a backfill.
func IsBackfill(id string) bool { return strings.HasPrefix(id, BackfillID) }

// IsManual reports whether the id is not that of a tick of a schedule.
func IsManual(id string) bool {
	for strings.HasPrefix(id, AfterID) {
		id = strings.TrimPrefix(id, AfterID)
	}
	return IsBackfill(id) || strings.HasPrefix(id, ManualID) || strings.HasPrefix(id, StartID)
}

// FillOf returns the id of the request whose tick has the id.
func FillOf(id string) string {
	fill, _, _ := strings.Cut(strings.TrimPrefix(id, BackfillID), "/")
	return fill
}
