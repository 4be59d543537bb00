package doctor

import (
	"context"

	"github.com/etcdclaims/claims/internal/explain"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Epoch reads the epoch of the claims, and returns it with the header of etcd's answer. The
// header is nil if the epoch cannot be read.
func (e *Examination) Epoch(ctx context.Context) (epoch int64, at *pb.ResponseHeader) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	epoch, at, err := explain.Epoch(ctx, e.etcd(), e.Claims.Prefix())
	if err != nil {
		e.Add(Error, "epoch", "correct the key, or grant its permission", "%v", err)
		return 0, nil
	}
	e.Well("epoch", "%d", epoch)
	return epoch, at
}
