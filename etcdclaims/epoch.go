package etcdclaims

import "github.com/etcdclaims/claims/internal/keyspace"

const (
	epochShift = keyspace.EpochShift
	maxEpoch   = keyspace.MaxEpoch
)

// revision returns the part of a fence that etcd compares.
func revision(fence int64) int64 { return keyspace.Revision(fence) }
