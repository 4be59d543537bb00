package durable

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/etcdclaims/claims/internal/audit"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/retry"
	"github.com/etcdclaims/claims/internal/tick"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Entry is one thing of a backup: all its keys, the one that makes it exist first.
type Entry struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // for people
	Keys []Key  `json:"keys"`
}

// Key is a key below the prefix, with its value.
type Key struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Operators is the kind of the records of operators, which a backup has, too.
const Operators Kind = "records of operators"

// saver reads a backup.
type saver struct {
	etcd   clientv3.KV
	prefix string
	yield  func(Entry, error) bool
	ended  bool
}

// Backup yields what outlives the processes that use it, and would not be made anew by them: the specs, pauses and dead
// letters of queues, the definitions and pauses of jobs, the numbers of partitions of groups, and the records of
// operators. It reads page by page, so later entries can be of later revisions. An error is the last value.
func Backup(ctx context.Context, etcd clientv3.KV, prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s := &saver{etcd: etcd, prefix: prefix, yield: yield}
		for _, of := range []struct {
			subtree string
			save    func(ctx context.Context, root string)
		}{{"queue/", s.queue}, {"sched/", s.jobs}, {"group/", s.group}} {
			for root, err := range roots(ctx, etcd, prefix+of.subtree) {
				if s.fail(err); s.ended {
					return
				}
				if of.save(ctx, root); s.ended {
					return
				}
			}
		}
		s.pages(ctx, audit.Under(prefix), func(kvs []*mvccpb.KeyValue) {
			for _, kv := range kvs {
				kv.Value = []byte(audit.Portable(prefix, kv))
				s.save(Operators, strings.TrimPrefix(string(kv.Key), prefix), kv)
			}
		})
	}
}

func (s *saver) fail(err error) {
	if err != nil && !s.ended {
		s.ended = true
		s.yield(Entry{}, txn.Denied(err))
	}
}

// save yields an entry of the keys that exist.
func (s *saver) save(kind Kind, name string, kvs ...*mvccpb.KeyValue) {
	e := Entry{Kind: kind, Name: name}
	for _, kv := range kvs {
		if kv != nil {
			e.Keys = append(e.Keys, Key{strings.TrimPrefix(string(kv.Key), s.prefix), string(kv.Value)})
		}
	}
	if len(e.Keys) > 0 && !s.ended {
		s.ended = !s.yield(e, nil)
	}
}

// pages calls f with the pages of a directory.
func (s *saver) pages(ctx context.Context, dir string, f func(kvs []*mvccpb.KeyValue)) {
	const perPage = 40 // with two more keys for each, below etcd's default limit of operations
	for page, err := range retry.List(ctx, s.etcd, readTime, clientv3.OpGet(dir, clientv3.WithPrefix()), perPage, perPage) {
		if s.fail(err); s.ended {
			return
		}
		if f(page.Kvs); s.ended {
			return
		}
	}
}

// read reads keys, nil for those that do not exist.
func (s *saver) read(ctx context.Context, keys ...string) []*mvccpb.KeyValue {
	all := make([]*mvccpb.KeyValue, len(keys))
	var ops []clientv3.Op
	for _, key := range keys {
		ops = append(ops, clientv3.OpGet(key))
	}
	resp, err := retry.Read(ctx, s.etcd, readTime, ops...)
	if s.fail(err); err == nil {
		for i := range keys {
			all[i] = txn.First(resp, i)
		}
	}
	return all
}

func (s *saver) queue(ctx context.Context, root string) {
	k := item.KeysBelow(root)
	is := s.read(ctx, k.Spec(), k.Paused())
	name := strings.TrimPrefix(root, s.prefix)
	if is[0] != nil {
		if spec, err := item.Decode[item.Spec](is[0].Key, is[0].Value); err == nil {
			name = spec.Name
		}
	}
	s.save(Queues, name, is[0])
	s.save(QueuePauses, name, is[1])
	s.pages(ctx, k.Dead(), func(kvs []*mvccpb.KeyValue) {
		var ids, keys []string
		for _, kv := range kvs {
			id := k.BareID(string(kv.Key))
			if state, err := item.DecodeState(kv); err == nil {
				id = state.ID
			}
			ids, keys = append(ids, id), append(keys, k.Content(id), k.Place(id))
		}
		beside := s.read(ctx, keys...)
		for i, kv := range kvs {
			s.save(DeadLetters, name+" "+ids[i], kv, beside[2*i], beside[2*i+1])
		}
	})
}

func (s *saver) jobs(ctx context.Context, root string) {
	k := tick.KeysUnder(root)
	s.pages(ctx, k.Definitions(), func(kvs []*mvccpb.KeyValue) {
		var notices []string
		for _, kv := range kvs {
			notices = append(notices, k.AllDefined()+strings.TrimPrefix(string(kv.Key), k.Definitions()))
		}
		beside := s.read(ctx, notices...)
		for i, kv := range kvs {
			name := strings.TrimPrefix(string(kv.Key), s.prefix)
			if d, err := keyspace.Decode[struct{ Name string }](name, kv.Value, 1<<30); err == nil && d.Name != "" {
				name = d.Name
			}
			s.save(Definitions, name, kv, beside[i])
		}
	})
	s.pages(ctx, k.AllPaused(), func(kvs []*mvccpb.KeyValue) {
		for _, kv := range kvs {
			s.save(JobPauses, strings.TrimPrefix(string(kv.Key), s.prefix), kv)
		}
	})
}

func (s *saver) group(ctx context.Context, root string) {
	s.save(Groups, strings.TrimPrefix(root, s.prefix), s.read(ctx, groupSpec(root))...)
}

// Check returns why an entry is none of a backup, or nil.
func (e Entry) Check() error {
	if len(e.Keys) == 0 {
		return fmt.Errorf("%s %q has no keys", e.Kind, e.Name)
	}
	for _, k := range e.Keys {
		dir, _, _ := strings.Cut(k.Key, "/")
		if dir != "queue" && dir != "sched" && dir != "group" && dir != "audit" {
			return fmt.Errorf("key %q is none of a backup", k.Key)
		}
	}
	return nil
}

// Restore puts an entry back, unless what it is about exists. It returns why it was left out, or "". With dry it only looks.
// The action of the operator is recorded with it.
func Restore(ctx context.Context, etcd clientv3.KV, prefix string, act *audit.Act, e Entry, dry bool) (leftOut string, err error) {
	var gets, puts []clientv3.Op
	var same []clientv3.Cmp
	for _, k := range e.Keys {
		gets = append(gets, clientv3.OpGet(prefix+k.Key))
	}
	resp, err := retry.Read(ctx, etcd, readTime, gets...)
	if err != nil {
		return "", txn.Denied(err)
	}
	for i, k := range e.Keys {
		is, rev := txn.First(resp, i), int64(0)
		switch {
		case is == nil:
			puts = append(puts, clientv3.OpPut(prefix+k.Key, k.Value))
		case i == 0:
			return "exists", nil
		case string(is.Value) != k.Value:
			return "has another " + k.Key + " by now", nil
		default:
			rev = is.ModRevision
		}
		same = append(same, clientv3.Compare(clientv3.ModRevision(prefix+k.Key), "=", rev))
	}
	if dry {
		return "", nil
	}
	done, err := retry.Within(ctx, readTime, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return etcd.Txn(ctx).If(same...).Then(append(puts, act.Ops()...)...).Else(gets[0]).Commit()
	})
	if err != nil {
		return "", act.End(ctx, txn.Outcome(ctx, err))
	}
	if !done.Succeeded { // or a request whose reply was lost has put it
		if is := txn.First(done, 0); is == nil || string(is.Value) != e.Keys[0].Value {
			return "changed meanwhile", nil
		}
	}
	return "", nil
}
