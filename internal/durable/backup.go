package durable

import (
	"context"
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
	Kind     Kind   `json:"kind"`
	Name     string `json:"name"`     // for people
	Revision int64  `json:"revision"` // of etcd when the backup began
	Keys     []Key  `json:"keys"`
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
	rev    int64
	yield  func(Entry, error) bool
	ended  bool
}

// Backup yields what outlives the processes that use it, and would not be made anew by them: the specs, pauses and dead
// letters of queues, the definitions and pauses of jobs, the numbers of partitions of groups, and the records of
// operators. It reads page by page, so later entries can be of later revisions. An error is the last value.
func Backup(ctx context.Context, etcd clientv3.KV, prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s := &saver{etcd: etcd, prefix: prefix, yield: yield}
		began, err := retry.Get(ctx, etcd, readTime, one(prefix+"epoch"))
		if s.fail(err); s.ended {
			return
		}
		s.rev = began.Header.Revision
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
		s.pages(ctx, audit.Under(prefix), perPage, func(kvs []*mvccpb.KeyValue) {
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
	e := Entry{Kind: kind, Name: name, Revision: s.rev}
	for _, kv := range kvs {
		if kv != nil {
			e.Keys = append(e.Keys, Key{strings.TrimPrefix(string(kv.Key), s.prefix), string(kv.Value)})
		}
	}
	if len(e.Keys) > 0 && !s.ended {
		s.ended = !s.yield(e, nil)
	}
}

const (
	perPage        = 40
	lettersPerPage = 8 // whose contents are read by one request: each may have more than a megabyte
)

// pages calls f with the pages of a directory, of at most n keys.
func (s *saver) pages(ctx context.Context, dir string, n int64, f func(kvs []*mvccpb.KeyValue)) {
	for page, err := range retry.List(ctx, s.etcd, readTime, clientv3.OpGet(dir, clientv3.WithPrefix()), n, n) {
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
	s.pages(ctx, k.Dead(), lettersPerPage, func(kvs []*mvccpb.KeyValue) {
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
	s.pages(ctx, k.Definitions(), perPage, func(kvs []*mvccpb.KeyValue) {
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
	for _, pauses := range []string{k.AllPaused(), k.Halts()} {
		s.pages(ctx, pauses, perPage, func(kvs []*mvccpb.KeyValue) {
			for _, kv := range kvs {
				s.save(JobPauses, strings.TrimPrefix(string(kv.Key), s.prefix), kv)
			}
		})
	}
}

func (s *saver) group(ctx context.Context, root string) {
	s.save(Groups, strings.TrimPrefix(root, s.prefix), s.read(ctx, groupSpec(root))...)
}
