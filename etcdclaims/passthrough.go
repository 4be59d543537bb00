package etcdclaims

import (
	"errors"

	"github.com/etcdclaims/claims/internal/passthrough"
	"go.uber.org/zap"
)

// ErrNoClient is returned by every call of a nil Client and of the zero Client: New was not
// called, or it returned an error that was ignored. Nothing was acquired, and no function was
// called.
var ErrNoClient = passthrough.ErrNoClient

var errNoEtcd = errors.New("etcdclaims: config: the etcd client is nil: clientv3.New was not called, or it returned an error that was ignored; NewPassthrough makes a client for development without etcd")

// NewPassthrough returns a client without etcd, for development and tests of one process.
// It excludes no other caller, in this process or another: every acquisition succeeds at
// once, with fence 0. Gates (package fencing) refuse fence 0. Reads return nothing. Calls that
// need etcd, such as Claim.Txn, return [ErrPassthrough].
//
// It logs one warning. An error describes the field of cfg that is invalid.
func NewPassthrough(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newClient(cfg)
	c.log.Warn("passthrough client made: claims exclude no other process, and their fence is 0", zap.String("owner", cfg.Owner))
	return c, nil
}

// passthroughClaim is what a client without etcd grants.
func passthroughClaim(o *acquireOptions) *Claim {
	keys := o.Mode.Keys()
	if keys.Slots > 0 {
		return &Claim{key: SlotKey(keys.User, 0)}
	}
	return &Claim{key: keys.User}
}
