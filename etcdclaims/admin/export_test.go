package admin

import (
	"github.com/etcdclaims/claims/etcdclaims"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// MostTermsKept is how many terms History keeps at most while it reads so many and returns
// the newest ones, and how many it leaves out.
func MostTermsKept(c *etcdclaims.Client, newest, terms int) (most, older int) {
	log := &termLog{c: of(c), key: "k", keep: newest}
	own := []byte(c.OwnKey("k"))
	for i := range int64(terms) {
		log.add(&clientv3.Event{Type: mvccpb.PUT, Kv: &mvccpb.KeyValue{Key: own, ModRevision: 2*i + 2, Value: []byte("{}")}})
		log.add(&clientv3.Event{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: own, ModRevision: 2*i + 3}})
		most = max(most, len(log.terms))
	}
	return most, log.dropped + len(log.terms) - len(log.newest())
}
