package sched

import (
	"time"

	"github.com/etcdclaims/claims/internal/tick"
)

// valueVersion is stored in every value, so that later versions can recognize it.
const valueVersion = tick.Version

// The values that the steps of package tick read and write.
type (
	ready      = tick.Ready
	run        = tick.Run
	past       = tick.Past
	pause      = tick.Pause
	cancelling = tick.Cancelling
)

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

func encode(v any) string { return tick.Encode(v) }

func decode[T any](key string, value []byte) (T, error) { return tick.Decode[T](key, value) }

func limitText(s string) string { return tick.LimitText(s) }
