package main

import "time"

// What parent and workers tell each other, as JSON: a job and then a start on
// the worker's standard input, events on its standard output. Who may do what is
// not among it: that is for claims alone.

// workerCommand is the argument that makes this program a worker.
const workerCommand = "worker"

// ttl is the least that a client accepts. Work of a dead worker is free again
// within this and a second.
const ttl = 5 * time.Second

// A job is what a worker is to do.
type job struct {
	Name      string   `json:"name"`
	Rank      int      `json:"rank"` // from 0
	Of        int      `json:"of"`   // so many workers
	Endpoints []string `json:"endpoints"`
	Prefix    string   `json:"prefix"` // of all keys of this run
	Root      string   `json:"root"`
	Pace      int      `json:"pace"` // files in a second, 0 for no limit
	Hold      bool     `json:"hold"` // stop right before the first write: see hold
}

// claims is the prefix of what belongs to the claims, and results of what
// belongs to us. Neither contains the other: operations given to Work.Complete
// must not touch the claims' own keys.
func (j job) claims() string  { return j.Prefix + "claims/" }
func (j job) results() string { return j.Prefix + "result/" }

// A start begins the counting, once all workers are ready.
type start struct {
	Go bool `json:"go"`
}

// A result is what is stored of a counted file.
type result struct {
	counts
	Worker string `json:"worker"`
	Fence  int64  `json:"fence"`
}

// An event is something that happened to a worker. How many files are done is
// not told by events: that can be seen in etcd.
type event struct {
	Kind     eventKind `json:"kind"`
	File     string    `json:"file,omitempty"`
	Fence    int64     `json:"fence,omitempty"`
	Attempt  int       `json:"attempt,omitempty"`
	Previous *previous `json:"previous,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// previous is who had the work before.
type previous struct {
	Owner string `json:"owner"`
	Fence int64  `json:"fence"`
}

type eventKind string

const (
	isReady    eventKind = "ready"     // waits for the start
	isHolding  eventKind = "holding"   // File is computed, its claim was checked, the write comes next
	tookOver   eventKind = "took over" // File, whose owner is gone
	lostClaim  eventKind = "lost"      // Complete found that the claim is over; nothing was written
	wasRefused eventKind = "refused"   // etcd refused the write of File under Fence
	wasWritten eventKind = "written"   // etcd carried that write out
)
