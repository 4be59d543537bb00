package doctor

import (
	"context"
	"fmt"
	"strconv"

	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Epoch reads the epoch of the claims, and returns it with the header of etcd's answer. The
// header is nil if the epoch cannot be read.
func (e *Examination) Epoch(ctx context.Context) (epoch int64, at *pb.ResponseHeader) {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	epoch, at, err := ReadEpoch(ctx, e.etcd(), e.Claims.Prefix())
	if err != nil {
		e.Add(Error, "epoch", "correct the key, or grant its permission", "%v", err)
		return 0, nil
	}
	e.Well("epoch", "%d", epoch)
	return epoch, at
}

// ReadEpoch returns the epoch of a prefix, with the header of etcd's answer.
func ReadEpoch(ctx context.Context, etcd *clientv3.Client, prefix string) (epoch int64, at *pb.ResponseHeader, err error) {
	key := keyspace.EpochKey(prefix)
	resp, err := etcd.Get(clientv3.WithRequireLeader(ctx), key)
	if err != nil {
		return 0, nil, fmt.Errorf("read the epoch: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return 0, resp.Header, nil
	}
	epoch, err = strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64)
	if err != nil {
		return 0, nil, fmt.Errorf("read the epoch: key %q has the value %.40q, which is no number: correct it", key, resp.Kvs[0].Value)
	}
	return epoch, resp.Header, nil
}
