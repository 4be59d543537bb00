package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/core"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// spec is the value of the key spec.
type spec = item.Spec

// configOf returns the Config that a spec is part of.
func configOf(s spec) Config {
	return Config{
		Name: s.Name, HigherFirst: s.HigherFirst, Aging: s.Aging,
		MaxTaken: s.MaxTaken, MaxWaiting: s.MaxWaiting, KeyLimit: s.LaneLimit(),
	}
}

// against names the fields in which a Config differs from what is stored, for errors.
func against(s, cfg spec) string {
	var differ []string
	field := func(name string, stored, configured any) {
		if stored != configured {
			differ = append(differ, fmt.Sprintf("Config.%s is %v, the queue has %v", name, configured, stored))
		}
	}
	field("HigherFirst", s.HigherFirst, cfg.HigherFirst)
	field("Aging", s.Aging, cfg.Aging)
	field("MaxTaken", s.MaxTaken, cfg.MaxTaken)
	field("MaxWaiting", s.MaxWaiting, cfg.MaxWaiting)
	field("KeyLimit", s.LaneLimit(), cfg.LaneLimit())
	field("Name", s.Name, cfg.Name) // which only a restore by hand can do
	return strings.Join(differ, "; ")
}

// entry is the value of worker/<session>. It repeats the spec. If the key spec is deleted by
// hand, new processes read the spec from any session that is left.
type entry struct {
	Version int    `json:"v"`
	Owner   string `json:"owner"`
	TTL     string `json:"ttl"`
	Void    int    `json:"void,omitempty"`
	Spec    spec   `json:"spec"`
}

func (q *store) spec() spec {
	s := spec{
		Version: item.Version, Name: q.cfg.Name,
		HigherFirst: q.cfg.HigherFirst, Aging: q.cfg.Aging, MaxTaken: q.cfg.MaxTaken, MaxWaiting: q.cfg.MaxWaiting,
	}
	if q.cfg.KeyLimit != s.LaneLimit() { // the default is not stored
		s.KeyLimit = q.cfg.KeyLimit
	}
	return s
}

func (q *store) entry(ttl time.Duration, void int) entry {
	return entry{Version: item.Version, Owner: q.claims.Owner(), TTL: ttl.String(), Void: void, Spec: q.spec()}
}

// anyEntry reads the entry of one session.
func (q *store) anyEntry() clientv3.Op {
	return clientv3.OpGet(q.keys.Workers(), clientv3.WithPrefix(), clientv3.WithLimit(1))
}

// known returns the spec that etcd has. Its arguments are the key spec and the reply to anyEntry.
// The result there is false if etcd has no spec; lost is true if only a session has it.
func known(key, entries []*mvccpb.KeyValue) (have spec, there, lost bool, err error) {
	switch {
	case len(key) > 0:
		have, err = item.Decode[spec](key[0].Key, key[0].Value)
		return have, true, false, err
	case len(entries) > 0:
		e, err := item.Decode[entry](entries[0].Key, entries[0].Value)
		return e.Spec, e.Spec.Name != "", true, err
	}
	return have, false, false, nil
}

// ensureSpec returns an error if the queue has another order or other bounds than the Config. It
// reads the spec once, and again when its keys may have been deleted by hand. It writes only if
// the key is missing: beyond its quota etcd refuses each request that could put a key.
func (q *store) ensureSpec(ctx context.Context) error {
	if q.specOK.Load() {
		return nil
	}
	_, err := q.agreeOnSpec(ctx)
	return err
}

// agreeOnSpec is ensureSpec that reads the spec in any case. It returns the key's ModRevision.
func (q *store) agreeOnSpec(ctx context.Context) (rev int64, err error) {
	want, key := q.spec(), q.keys.Spec()
	resp, err := q.read(ctx, clientv3.OpGet(key), q.anyEntry())
	for err == nil {
		kvs := txn.Kvs(resp, 0)
		have, there, lost, err := known(kvs, txn.Kvs(resp, 1))
		switch {
		case err != nil:
			return 0, err
		case !there:
			have = want
		}
		if there && !lost {
			rev = kvs[0].ModRevision
		} else {
			if resp, err = q.putSpec(ctx, have, lost); err != nil {
				return 0, err
			}
			if !resp.Succeeded {
				continue // the reply has the spec that another process put
			}
			rev = resp.Header.Revision
		}
		if have != want {
			return 0, fmt.Errorf("%w: %s; Open takes that of the queue, and Reconfigure changes it once all processes have closed the queue", ErrConfig, against(have, want))
		}
		q.specOK.Store(true)
		return rev, nil
	}
	return 0, err
}

// putSpec puts the key spec if it is missing. Unless the spec is that of a session, there must be
// no session either. Otherwise putSpec reads both.
func (q *store) putSpec(ctx context.Context, have spec, lost bool) (*clientv3.TxnResponse, error) {
	key := q.keys.Spec()
	cmps := []clientv3.Cmp{absent(key)}
	if !lost {
		cmps = append(cmps, absent(q.keys.Workers()).WithPrefix())
	}
	limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), requestTimeout)
	defer cancel()
	// The request may be carried out twice or late: it only creates a key that is absent.
	resp, err := core.Of(q.claims).KV().Txn(limited).If(cmps...).
		Then(clientv3.OpPut(key, item.Encode(have))).
		Else(clientv3.OpGet(key), q.anyEntry()).
		Commit()
	if err == nil && resp.Succeeded && lost {
		q.log.Warn("queue's spec was missing; put back")
	}
	return resp, txn.Unanswered(ctx, err)
}

// checkSpec makes the next call of ensureSpec read the spec if the key differs from the Config.
func (q *store) checkSpec(key []*mvccpb.KeyValue) {
	if have, there, lost, err := known(key, nil); err != nil || !there || lost || have != q.spec() {
		q.specOK.Store(false)
	}
}
