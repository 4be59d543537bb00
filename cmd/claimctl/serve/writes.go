package serve

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxWrites is how many keys one transaction may change.
const maxWrites = 64

// writes are what one transaction changes in etcd.
type writes struct {
	Put    []put    `json:"put"`
	Delete []string `json:"delete"`
}

type put struct {
	Key    string  `json:"key"`
	Value  *string `json:"value"`
	Base64 []byte  `json:"value_base64"`
}

// ops returns the operations. It refuses keys of claims, and what etcd would refuse.
func (ws writes) ops(claims *etcdclaims.Client) ([]clientv3.Op, error) {
	var ops []clientv3.Op
	seen := map[string]bool{}
	for _, p := range ws.Put {
		value := string(p.Base64)
		if p.Value != nil {
			value = *p.Value
		}
		if (p.Value == nil) == (p.Base64 == nil) {
			return nil, refused{badRequest, fmt.Sprintf("The put of %.80q must have either value or value_base64.", p.Key)}
		}
		ops = append(ops, clientv3.OpPut(p.Key, value))
	}
	for _, key := range ws.Delete {
		ops = append(ops, clientv3.OpDelete(key))
	}
	if len(ops) > maxWrites {
		return nil, refused{tooLarge, fmt.Sprintf("One transaction changes up to %d keys.", maxWrites)}
	}
	for _, op := range ops {
		key := string(op.KeyBytes())
		if key == "" || seen[key] || strings.HasPrefix(key, claims.Prefix()) {
			return nil, refused{badRequest, fmt.Sprintf("The key %.80q is empty, given twice, or one of the claims.", key)}
		}
		seen[key] = true
	}
	return ops, nil
}

// txnView is the answer to writes under a claim.
type txnView struct {
	Revision int64 `json:"revision"`
}

// txnClaim carries writes out while the claim is held, or none of them.
func (s *Server) txnClaim(w http.ResponseWriter, r *http.Request) error {
	l, err := s.claim(r)
	if err == nil && r.Header.Get(fencing.Header) == "" {
		err = fencing.ErrNoToken
	}
	if err != nil {
		return err
	}
	var ws writes
	if err := decode(w, r, largeBody, &ws); err != nil {
		return err
	}
	ops, err := ws.ops(s.cfg.Claims)
	if err == nil && len(ops) == 0 {
		err = refused{badRequest, "There is nothing to put or delete."}
	}
	if err == nil {
		err = s.leases.check(l)
	}
	if err != nil {
		return err
	}
	ctx, cancel := calling(r)
	defer cancel()
	resp, err := l.is.(claimHolding).Txn(ctx).Then(ops...).Commit()
	if errors.Is(err, etcdclaims.ErrLost) && !errors.Is(err, etcdclaims.ErrUnknown) {
		s.leases.end(l, err)
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, txnView{resp.Header.Revision})
}
