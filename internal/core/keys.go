package core

import (
	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Keys is where things are in etcd.
type Keys interface {
	// Layout returns where things are.
	Layout() protocol.Layout
	// Held returns a *HeldError for the holder of a key that was read, or for the caller that is
	// first in line. Its text does not say that the call acquires.
	Held(key string, own *mvccpb.KeyValue, waiting int64) error
}
