package etcdclaims

import (
	"context"

	"github.com/etcdclaims/claims/internal/serverfault"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// checkVersion asks a member of etcd for its version, and warns of one that has
// faults which its line has fixed. Nothing depends on it: it is done once, with the
// first session, beside the client's requests. No server is asked
// again.
//
// The request is not among those that Stats counts. It is one in the life of a
// client, and at no fixed time: the count would show the cost of claims less exactly.
func (c *Client) checkVersion() {
	// Not etcd.Status, which dials a connection of its own.
	conn := c.etcd.ActiveConnection()
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.life.IO, c.store.Timeout())
	defer cancel()
	resp, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		c.log.Debug("etcd version not read", zap.Error(err))
		return
	}
	fault, fixedIn, err := serverfault.Of(resp.Version)
	if err != nil {
		c.log.Debug("etcd version not parsed", zap.Error(err))
		return
	}
	if fault != "" {
		c.log.Warn("etcd lacks a fix; upgrade it",
			zap.String("version", resp.Version), zap.String("fault", fault), zap.String("fixedIn", fixedIn))
	}
}
