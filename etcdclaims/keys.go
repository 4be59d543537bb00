package etcdclaims

import (
	"fmt"

	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// foreignKey returns why a key is not for callers to claim, or nil.
func foreignKey(key string) error {
	if why := keyspace.Unclaimable(key); why != "" {
		return fmt.Errorf("%w: %s", ErrInvalidKey, why)
	}
	return nil
}

// validKey returns why a key is invalid, or nil.
func validKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("%w: %.40q… has %d bytes, the limit is %d: use a digest of it", ErrInvalidKey, key, len(key), MaxKeyBytes)
	case !printable(key):
		return fmt.Errorf("%w: %q is not UTF-8 without control characters", ErrInvalidKey, key)
	}
	return nil
}

// conditions are those of a step as clientv3 has them, for callers.
func conditions(cmps []*pb.Compare) []clientv3.Cmp {
	all := make([]clientv3.Cmp, len(cmps))
	for i, cmp := range cmps {
		all[i] = clientv3.FromCompare(cmp)
	}
	return all
}
