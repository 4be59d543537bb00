package etcdclaims

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

const (
	epochShift = keyspace.EpochShift
	maxEpoch   = keyspace.MaxEpoch
)

// revision returns the part of a fence that etcd compares.
func revision(fence int64) int64 { return keyspace.Revision(fence) }

// parseEpoch reads the epoch's key.
func parseEpoch(kv *mvccpb.KeyValue) (int64, error) { return keyspace.StoredEpoch(kv.Key, kv.Value) }
