package queue

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Open returns access to a queue that exists. It is for programs that do not know the
// order and the bounds of the queue, such as tools. Open takes these from etcd, as the
// first process stored them. The other fields of Config have their defaults. To set them,
// read [Queue.Config], change the fields, and call [New]. Open sends one request, which
// changes nothing.
//
// Errors: ErrNotFound if no process ever called Enqueue or Claim on a queue of this
// name, etcdclaims.ErrInvalidKey if no queue can have the name, and those of reading
// from etcd.
func Open(ctx context.Context, claims *etcdclaims.Client, name string) (*Queue, error) {
	cfg, err := storedConfig(ctx, claims, name)
	if err != nil {
		return nil, err
	}
	return New(claims, cfg)
}

// storedConfig returns the stored part of the configuration of a queue.
func storedConfig(ctx context.Context, claims *etcdclaims.Client, name string) (Config, error) {
	q, err := newUnattached(claims, Config{Name: name}) // it only reads
	if err != nil {
		return Config{}, err
	}
	resp, err := q.read(ctx, clientv3.OpGet(q.keys.Spec()), q.anyEntry())
	if err != nil {
		return Config{}, q.fail("open", err)
	}
	have, there, _, err := known(txn.Kvs(resp, 0), txn.Kvs(resp, 1))
	switch {
	case err != nil:
	case !there:
		err = errNoQueue
	case have.Name != name:
		err = fmt.Errorf("value of %q is of the queue %q", q.keys.Spec(), have.Name)
	}
	if err != nil {
		return Config{}, q.fail("open", err)
	}
	return configOf(have), nil
}

// Config returns the configuration of this access to the queue, with defaults filled in.
func (q *Queue) Config() Config { return q.cfg }
