package etcdguard

import (
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// writes reports whether any of the operations does.
func writes(ops []clientv3.Op) bool {
	for _, op := range ops {
		if op.IsPut() || op.IsDelete() {
			return true
		}
		if op.IsTxn() {
			if _, then, els := op.Txn(); writes(then) || writes(els) {
				return true
			}
		}
	}
	return false
}

// check refuses what would change the claims themselves: the guard of a
// transaction that moves what it stands on holds for nobody.
func (g *guard) check(lists ...[]clientv3.Op) error {
	for _, ops := range lists {
		for _, op := range ops {
			switch {
			case op.IsTxn():
				_, then, els := op.Txn()
				if err := g.check(then, els); err != nil {
					return err
				}
			case op.IsGet():
			case !op.IsPut() && !op.IsDelete():
				return errors.New("etcdguard: an operation is none: make it with clientv3.OpPut, OpDelete, OpGet or OpTxn")
			case len(op.KeyBytes()) == 0:
				return fmt.Errorf("etcdguard: writing for %v: a key is empty: %w", g.token, rpctypes.ErrEmptyKey)
			case g.touches(string(op.KeyBytes()), string(op.RangeBytes())):
				return fmt.Errorf("%w: a write to %q, where the claims are", ErrNotGuarded, op.KeyBytes())
			}
		}
	}
	return nil
}

// touches reports whether [key, end) has keys of the claims.
func (g *guard) touches(key, end string) bool { return keyspace.Reserved(g.prefix, key, end) }
