package sched

import (
	"time"

	"github.com/etcdclaims/claims/internal/jobstate"
	"github.com/etcdclaims/claims/internal/lanes"
	"github.com/etcdclaims/claims/internal/tick"
	clientv3 "go.etcd.io/etcd/client/v3"
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
	spec       = jobstate.Spec
	resetting  = jobstate.Resetting
	waiter     = lanes.Tick
)

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

func decode[T any](key string, value []byte) (T, error) { return tick.Decode[T](key, value) }

func limitText(s string) string { return tick.LimitText(s) }

// keys are the keys of a group in etcd.
type keys = tick.Keys

func newKeys(prefix, group string) keys { return tick.NewKeys(prefix, group) }

// The keys of claims.

func ownerKey(group string) string { return tick.OwnerClaim(group) }

func jobKey(group, job string) string { return tick.JobClaim(group, job) }

// absent is the condition that a key does not exist.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// definedAs is the condition that the definition of the job has the version. Version 0
// means that the job is not defined.
func (g *group) definedAs(job string, version int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(g.keys.Definition(job)), "=", version)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// notice is the value of now/defined/: a job is defined. It is put with the definition, so
// both have the same revision. Processes follow the notices, which are short, and read the
// definitions that are new to them.
type notice struct {
	Version int    `json:"v"`
	Job     string `json:"job"`
	After   string `json:"after,omitempty"` // Definition.After
}
