package clusters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdclaims/claims/internal/keyspace"
)

// Record is what a cluster knows of a family.
type Record struct {
	Version    int    `json:"v"`
	Generation int64  `json:"generation"`
	MovedTo    string `json:"movedTo,omitempty"` // empty: the family is here
}

const version = 1

// Prefix is where the claims of a family are, in each cluster. Clients of package
// etcdclaims have it as their Config.Prefix.
func Prefix(family string) string {
	return keyspace.DefaultPrefix + "family/" + keyspace.Digest(family) + "/"
}

// Key is the key of a family's record. It is not under the prefix of the claims, which is
// reserved for them.
func Key(family string) string {
	return keyspace.DefaultPrefix + "families/" + keyspace.Digest(family)
}

// state is what a cluster has of a family, read at one revision.
type state struct {
	record    Record
	raw       string // the record's value
	recordRev int64  // 0: there is no record
	epoch     int64
	epochRev  int64
}

// here reports whether the family is in this cluster.
func (s state) here() bool { return s.recordRev > 0 && s.record.MovedTo == "" }

// next is a generation greater than every epoch and generation that this cluster has had.
func (s state) next() int64 { return max(s.record.Generation, s.epoch) + 1 }

// Read returns the record that a cluster has of a family, the zero value if it has none.
func Read(ctx context.Context, kv clientv3.KV, family string) (Record, error) {
	s, err := read(ctx, kv, family)
	return s.record, err
}

func read(ctx context.Context, kv clientv3.KV, family string) (s state, err error) {
	resp, err := kv.Txn(ctx).Then(clientv3.OpGet(Key(family)), clientv3.OpGet(keyspace.EpochKey(Prefix(family)))).Commit()
	if err != nil {
		return s, err
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		s.raw, s.recordRev = string(kvs[0].Value), kvs[0].ModRevision
		if err := json.Unmarshal(kvs[0].Value, &s.record); err != nil || s.record.Version != version {
			return s, fmt.Errorf("clusters: the record %q of family %q cannot be read: %w", Key(family), family, errors.Join(err, errVersion))
		}
	}
	if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		s.epochRev = kvs[0].ModRevision
		var ok bool
		if s.epoch, ok = keyspace.ParseEpoch(string(kvs[0].Value)); !ok {
			return s, fmt.Errorf("clusters: the epoch of family %q cannot be read: it is %.40q", family, kvs[0].Value)
		}
	}
	return s, nil
}

var errVersion = errors.New("its version must be 1")

// put replaces the state that was read. It reports false, and changes nothing, if another
// process has changed it since.
func (s state) put(ctx context.Context, kv clientv3.KV, family string, r Record, epoch int64) (bool, error) {
	if epoch > keyspace.MaxEpoch {
		return false, fmt.Errorf("clusters: family %q has moved %d times and can move no more: its fences have no higher epoch", family, keyspace.MaxEpoch)
	}
	r.Version = version
	value, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	record, epochKey := Key(family), keyspace.EpochKey(Prefix(family))
	resp, err := kv.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(record), "=", s.recordRev),
		clientv3.Compare(clientv3.ModRevision(epochKey), "=", s.epochRev),
	).Then(
		clientv3.OpPut(record, string(value)),
		clientv3.OpPut(epochKey, strconv.FormatInt(epoch, 10)),
	).Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

// bear records that the family is here, where it has never been.
func (s state) bear(ctx context.Context, kv clientv3.KV, family string) (bool, error) {
	generation := s.next()
	return s.put(ctx, kv, family, Record{Generation: generation}, generation)
}

// seal records that the family has moved, and ends its claims here.
func (s state) seal(ctx context.Context, kv clientv3.KV, family, to string) (bool, error) {
	generation := s.next()
	return s.put(ctx, kv, family, Record{Generation: generation, MovedTo: to}, generation)
}

// open records that a family that was sealed with this generation is here. A cluster in which
// an operator has raised the epoch meanwhile gets one that is higher still.
func (s state) open(ctx context.Context, kv clientv3.KV, family string, generation int64) (bool, error) {
	return s.put(ctx, kv, family, Record{Generation: generation}, max(generation, s.epoch+1))
}
