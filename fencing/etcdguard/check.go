package etcdguard

import (
	"errors"
	"fmt"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// writes reports whether any of the operations is a put or a delete.
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

// check refuses operations that would change the claims themselves. A transaction
// that changes the keys that its guard compares would guard nothing.
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
				return errors.New("etcdguard: the zero Op is not an operation: make it with clientv3.OpPut, OpDelete, OpGet or OpTxn")
			case len(op.KeyBytes()) == 0:
				return fmt.Errorf("etcdguard: writing for %v: a key is empty: %w", g.token, rpctypes.ErrEmptyKey)
			case g.touches(string(op.KeyBytes()), string(op.RangeBytes())):
				return fmt.Errorf("etcdguard: %w: the write to %q would change keys of the claims", ErrNotGuarded, op.KeyBytes())
			}
		}
	}
	return nil
}

// touches reports whether the range [key, end) contains keys of the claims.
func (g *guard) touches(key, end string) bool { return keyspace.Reserved(g.prefix, key, end) }
