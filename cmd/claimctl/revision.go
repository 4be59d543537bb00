package main

import (
	"fmt"

	"github.com/etcdclaims/claims/internal/doctor"
	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// revision finds out whether etcd was restored from a snapshot that is older than the fence
// that was seen elsewhere. In one epoch revisions only rise.
func (c *checkup) revision(epoch int64, at *pb.ResponseHeader) {
	seen, of := keyspace.Revision(c.fence), keyspace.Epoch(c.fence)
	if epoch > of || epoch == of && at.Revision >= seen {
		c.Well(doctor.CheckRevision, "%d, not behind --fence", at.Revision)
		return
	}
	remedy := fmt.Sprintf("etcd was restored without --bump-revision, so that fences repeat: "+
		"stop the programs that write under fences, then: %s epoch raise --above %d --yes", c.claimctl(), of)
	c.Add(doctor.Error, doctor.CheckRevision, remedy,
		"fence %d has revision %d of epoch %d, and etcd is at %d of epoch %d", c.fence, seen, of, at.Revision, epoch)
}
