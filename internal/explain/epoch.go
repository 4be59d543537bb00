package explain

import (
	"context"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Epoch returns the epoch of a prefix, with the header of etcd's answer.
func Epoch(ctx context.Context, etcd *clientv3.Client, prefix string) (epoch int64, at *pb.ResponseHeader, err error) {
	resp, err := etcd.Get(clientv3.WithRequireLeader(ctx), keyspace.EpochKey(prefix))
	if err != nil {
		return 0, nil, errtext.Wrap("read the epoch", err)
	}
	is, err := txn.ReadEpoch(resp.Kvs, resp.Header.Revision)
	if err != nil {
		return 0, nil, errtext.Wrap("read the epoch", err)
	}
	return is.Value, resp.Header, nil
}
