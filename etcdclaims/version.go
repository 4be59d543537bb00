package etcdclaims

import (
	"context"
	"fmt"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
)

// Faults of servers that claims are better off without. No claim is given away
// by them, since what decides is asked by a transaction that writes; but they
// make a claim that is lost look held for longer, and show keys to strangers.
const (
	staleReads    = "a member that was paused may answer linearizable reads from its past (etcd-io/etcd#20418)"
	watchOverRead = "a watch may show keys that its user has no permission to read (GHSA-xg4h-6gfc-h4m8)"
	endOfLife     = "etcd before 3.5 gets no fixes any more"
)

// oldestLine is the first minor version of etcd 3 that gets fixes.
const oldestLine = 5

// floors says of minor versions of etcd 3 which patch to run at least, and what
// those before it lack. Lines that are not listed are younger than all of this.
var floors = map[int64]struct {
	patch int64
	fault string
}{
	5: {28, staleReads},
	6: {9, staleReads},
	7: {1, watchOverRead},
}

// faultOf says what is wrong with an etcd of that version, and from which
// version on it is not. It returns nothing for one that is good.
//
// What follows the patch in a version does not count: etcd itself has release
// candidates of the first patch of a line only, and with others it says who
// built it.
func faultOf(v *semver.Version) (fault, fixedIn string) {
	floor, listed := floors[v.Minor]
	switch {
	case v.Major > 3:
		return "", ""
	case v.Major < 3 || v.Minor < oldestLine:
		fault = endOfLife
		if v.Major == 3 && v.Minor == 4 && v.Patch < 42 {
			fault += "; " + staleReads // what older lines have, nobody looked into
		}
		return fault, fmt.Sprintf("3.%d.%d", oldestLine, floors[oldestLine].patch)
	case listed && v.Patch < floor.patch:
		return floor.fault, fmt.Sprintf("3.%d.%d", v.Minor, floor.patch)
	}
	return "", ""
}

// checkVersion asks a member of etcd for its version, and warns of one that has
// faults which its line has fixed. Nothing depends on it: it is done once, with
// the first session, beside whatever the client does, and a server that does not
// tell is left alone.
//
// The request is not among those that Stats counts. It is one in the life of a
// client, and at no fixed time: the count would tell less of what claims cost.
func (c *Client) checkVersion() {
	// Not etcd.Status, which dials a connection of its own.
	conn := c.etcd.ActiveConnection()
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.io, c.store.timeout)
	defer cancel()
	resp, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		c.log.Debug("etcd does not tell its version", zap.Error(err))
		return
	}
	v, err := semver.NewVersion(resp.Version)
	if err != nil {
		c.log.Debug("etcd tells a version that cannot be read", zap.Error(err))
		return
	}
	if fault, fixedIn := faultOf(v); fault != "" {
		c.log.Warn("etcd lacks a fix and should be upgraded",
			zap.String("version", resp.Version), zap.String("fault", fault), zap.String("fixedIn", fixedIn))
	}
}
