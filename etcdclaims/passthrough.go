package etcdclaims

import (
	"cmp"
	"errors"

	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/internal/protocol"
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

// Passthrough reports whether the client was made by [NewPassthrough].
func (c *Client) Passthrough() bool { return c.refusal() == nil && c.etcd == nil }

// refusal returns ErrNoClient unless the client was made by New or NewPassthrough.
func (c *Client) refusal() error {
	if c == nil || c.log == nil {
		return ErrNoClient
	}
	return nil
}

// connects reports whether the client was made by New.
func (c *Client) connects() bool { return c != nil && c.store != nil }

// unconnected returns why a call that needs etcd is refused by a client that was not made by New.
func (c *Client) unconnected() error { return cmp.Or(c.refusal(), ErrPassthrough) }

// passthroughClaim is what a client without etcd grants.
func passthroughClaim(o *acquireOptions) *Claim {
	keys := o.Mode.Keys()
	if keys.Slots > 0 {
		return &Claim{key: SlotKey(keys.User, 0)}
	}
	return &Claim{key: keys.User}
}

// layout is where the client keeps its keys.
func (c *Client) layout() protocol.Layout {
	if c.Passthrough() {
		return protocol.Layout{}
	}
	return c.store.Layout
}
