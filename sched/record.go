package sched

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// valueVersion stands in every value, so that a later version can tell.
const valueVersion = 1

// spec is the value of spec/: what the job is, as its owner took it over.
type spec struct {
	Version  int       `json:"v"`
	Group    string    `json:"group"`
	Job      string    `json:"job"`
	Schedule string    `json:"schedule"`
	Revision string    `json:"revision,omitempty"`
	Hash     string    `json:"hash"`
	Since    time.Time `json:"since"` // of this revision
	Born     time.Time `json:"born"`  // of the job
	CatchUp  string    `json:"catchUp"`
	Overlap  string    `json:"overlap"`
	Delivery string    `json:"delivery"`
	Started  []string  `json:"started,omitempty"` // revisions whose RunOnStart was due
}

// ready is the value of ready/: a tick that was admitted.
type ready struct {
	Version  int       `json:"v"`
	Job      string    `json:"job"`
	ID       string    `json:"id"`
	Nominal  time.Time `json:"nominal"`
	Actual   time.Time `json:"actual"`
	Attempt  int       `json:"attempt"`
	Missed   int       `json:"missed,omitempty"`
	Parallel bool      `json:"parallel,omitempty"`        // its run excludes no other: by the Overlap of who admitted it
	Admitted int64     `json:"admitted,string,omitempty"` // unknown to the first writer: its own revision
	Epoch    int64     `json:"epoch,omitempty"`           // of claims, as far as the last writer knew
	Last     *past     `json:"last,omitempty"`            // what became of the attempt before
	Note     string    `json:"note,omitempty"`            // who asked for it, or what became of the last attempt
}

// run is the value of run/: a tick that was begun. It is put once per attempt, in
// the transaction that claims the run: its revision is the claim's.
type run struct {
	ready
	Claim    string    `json:"claim"` // key of the run's claim
	Run      string    `json:"run"`   // of this attempt alone
	Owner    string    `json:"owner"`
	Instance string    `json:"instance"`
	Began    time.Time `json:"began"`
}

// past is the value of past/: what became of a tick.
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
}

// at is the last part of the record's key: in the order of time.
func (p past) at() string {
	id := p.Run
	if id == "" {
		id = digest(string(p.Outcome) + p.ID)[:16]
	}
	return enc(p.Ended) + "-" + id
}

// pause is the value of paused/.
type pause struct {
	Version int       `json:"v"`
	By      string    `json:"by"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
}

// cancelling is the value of cancel/: it concerns runs begun before its own
// revision.
type cancelling struct {
	Version int       `json:"v"`
	By      string    `json:"by"`
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
}

// ask is the value of ask/: RunNow, or a Backfill and how far it is.
type ask struct {
	Version  int       `json:"v"`
	Job      string    `json:"job"`
	ID       string    `json:"id"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	From     time.Time `json:"from,omitzero"` // of a backfill: exclusive, and moved on
	To       time.Time `json:"to,omitzero"`   // inclusive
	Parallel bool      `json:"parallel,omitempty"`
}

// failures is the value of fail/.
type failures struct {
	Version int `json:"v"`
	InARow  int `json:"inARow"`
}

// encode writes a value. All are made of what JSON has.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("sched: a record cannot be encoded: %v", err))
	}
	return string(b)
}

// decode reads a value of this version.
func decode[T any](key string, value []byte) (T, error) {
	var v T
	var head struct {
		Version int `json:"v"`
	}
	err := json.Unmarshal(value, &head)
	switch {
	case err == nil && head.Version > valueVersion:
		err = fmt.Errorf("version %d is newer than this package's %d", head.Version, valueVersion)
	case err == nil:
		err = json.Unmarshal(value, &v)
	}
	if err != nil {
		return v, fmt.Errorf("sched: the value of %s cannot be read: %w", key, err)
	}
	return v, nil
}

// limitText keeps an error's text within what a record should carry.
func limitText(s string) string {
	const most = 1024
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
