package sched

import (
	"github.com/etcdclaims/claims/internal/tick"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
