package queue

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Names yields the names of all queues under the client's prefix, in no particular
// order: those that ever had an item, also if they are empty now. It reads one key for
// each queue, and one more at the end. [Active] reads less. A queue of a newer version of
// this package is left out. An error ends the iteration.
func Names(ctx context.Context, claims *etcdclaims.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if claims.Passthrough() {
			yield("", etcdclaims.ErrPassthrough)
			return
		}
		for from := claims.Prefix() + "queue/"; from != ""; {
			name, next, err := nameAfter(ctx, claims, from)
			if err != nil {
				yield("", fmt.Errorf("list the queues: %w", err))
				return
			}
			if name != "" && !yield(name, nil) {
				return
			}
			from = next
		}
	}
}

// nameAfter returns the name of the queue that has the first key from a key on, and
// where the keys behind it begin, which is empty at the end.
func nameAfter(ctx context.Context, claims *etcdclaims.Client, from string) (name, next string, err error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	k := keys{top: claims.Prefix() + "queue/"}
	resp, err := claims.Etcd().Get(ctx, from, clientv3.WithRange(keyspace.RangeEnd(k.top)), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		return "", "", err
	}
	key := string(resp.Kvs[0].Key)
	digest, _, _ := strings.Cut(key[len(k.top):], "/")
	k.root = k.top + digest + "/"
	if !strings.HasPrefix(key, k.root) {
		return "", key + "\x00", nil // of another program
	}
	next = keyspace.RangeEnd(k.root)
	if k.root == k.actives() {
		return "", next, nil
	}
	if resp, err = claims.Etcd().Get(ctx, k.spec()); err != nil || len(resp.Kvs) == 0 {
		return "", next, err
	}
	s, err := decode[spec](resp.Kvs[0].Key, resp.Kvs[0].Value)
	if err != nil {
		return "", next, nil // of a newer version
	}
	return s.Name, next, nil
}
