package queue

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Open returns access to a queue that exists, with the order and the bounds that its
// first process gave it, for programs that do not know them: tools, and workers that
// serve a queue of somebody else's. Fields of Config that are each process's own have
// their defaults; a process that wants others reads [Queue.Config] and calls [New].
// Open reads one key, and changes nothing.
//
// Errors: ErrNoQueue if nothing was ever enqueued into or claimed from a queue of this
// name, etcdclaims.ErrInvalidKey if no queue can have the name, and those of reading
// from etcd.
func Open(ctx context.Context, claims *etcdclaims.Client, name string) (*Queue, error) {
	cfg, err := storedConfig(ctx, claims, name)
	if err != nil {
		return nil, err
	}
	return New(claims, cfg)
}

// storedConfig returns what is stored of the configuration of a queue.
func storedConfig(ctx context.Context, claims *etcdclaims.Client, name string) (Config, error) {
	q, err := New(claims, Config{Name: name})
	if err != nil {
		return Config{}, err
	}
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.spec()))
	if err != nil {
		return Config{}, q.fail("open", err)
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return Config{}, q.fail("open", ErrNoQueue)
	}
	have, err := decode[spec](kvs[0].Key, kvs[0].Value)
	if err == nil && have.Name != name {
		err = fmt.Errorf("value of %q is of the queue %q", kvs[0].Key, have.Name)
	}
	if err != nil {
		return Config{}, q.fail("open", err)
	}
	return Config{Name: name, HigherFirst: have.HigherFirst, MaxTaken: have.MaxTaken, MaxWaiting: have.MaxWaiting}, nil
}

// Config returns the configuration of this access to the queue, with defaults filled in.
func (q *Queue) Config() Config { return q.cfg }
