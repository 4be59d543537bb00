package sched

import (
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
	ask        = tick.Ask
	notice     = tick.Notice
	spec       = jobstate.Spec
	resetting  = jobstate.Resetting
	waiter     = lanes.Tick
)

func decode[T any](key string, value []byte) (T, error) { return tick.Decode[T](key, value) }

func limitText(s string) string { return tick.LimitText(s) }

// keys are the keys of a group in etcd.
type keys = tick.Keys

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
