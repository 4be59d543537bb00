package group

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keys is the layout of a group in etcd. Below the client's prefix and group/<digest of
// the name>/:
//
//	spec            the number of partitions; the only key without a lease
//	member/<name>   a member that is there, on the lease of its claim
//	away/<name>     a member whose partitions are reserved, on a lease of Config.Away
//	evicted/<name>  a member that was evicted, on a lease of that time
//	process/<inst>  a process that is or was a member, on the lease of its entry: it can own
//	                partitions also when another process has its name, or it has left the list
//
// The claims of members and partitions are group/<name>/member/<instance> and
// group/<name>/partition/<number>. No group's name has a slash, so none of these is another's.
type keys struct{ group, root string }

func newKeys(prefix, group string) keys {
	return keys{group, prefix + "group/" + keyspace.Digest(group) + "/"}
}

const (
	dirSpec    = "spec/" // of the key without the slash
	dirMember  = "member/"
	dirAway    = "away/"
	dirEvicted = "evicted/"
	dirProcess = "process/"
)

func (k keys) spec() string               { return k.root + "spec" }
func (k keys) member(name string) string  { return k.root + dirMember + name }
func (k keys) away(name string) string    { return k.root + dirAway + name }
func (k keys) evicted(name string) string { return k.root + dirEvicted + name }
func (k keys) process(inst string) string { return k.root + dirProcess + inst }
func (k keys) claims() string             { return "group/" + k.group + "/" }
func (k keys) claimOf(inst string) string { return k.claims() + "member/" + inst }
func (k keys) partitions() string         { return k.claims() + "partition/" }
func (k keys) partition(partition int) string {
	return fmt.Sprintf("%s%05d", k.partitions(), partition)
}

// partitionOf returns the partition of a claim's key. ok is false for any other key.
func (k keys) partitionOf(key string) (partition int, ok bool) {
	partition, err := strconv.Atoi(strings.TrimPrefix(key, k.partitions()))
	return partition, err == nil && partition >= 0 && k.partition(partition) == key
}

// valueVersion is the version of all values. A later version keeps what others plan by:
// the instance and the weight of an entry, and that a name with an eviction is off the
// list. So processes of both versions have the same plan. A version that cannot keep that
// puts its members elsewhere. A value of a later version is never overwritten or
// deleted.
const valueVersion = 1

// spec is what all members must agree on.
type spec struct {
	Version    int    `json:"v"`
	Group      string `json:"group"`
	Partitions int    `json:"partitions"`
}

// entry describes a member that is there, or away. One that is there has it also as the value
// of its process.
type entry struct {
	Version    int          `json:"v"`
	Name       string       `json:"name,omitempty"`     // of a member that is there
	Claim      string       `json:"claim,omitempty"`    // of the member
	Instance   string       `json:"instance,omitempty"` // of its client
	Weight     int          `json:"weight"`
	Address    string       `json:"address,omitempty"`
	Zone       string       `json:"zone,omitempty"`
	Since      time.Time    `json:"since"`
	Until      time.Time    `json:"until,omitzero"`       // while away: when the reservation lapses
	Partitions partitionSet `json:"partitions,omitempty"` // while away: those that the member had
}

func (e entry) info(name string) MemberInfo {
	return MemberInfo{Name: name, Weight: e.Weight, Address: e.Address, Zone: e.Zone, Instance: e.Instance, Since: e.Since, Until: e.Until}
}

// partitionSet has a bit for each partition: partition 8i+j is bit j of byte i.
type partitionSet []byte

func (s partitionSet) with(partition int) partitionSet {
	for len(s) <= partition/8 {
		s = append(s, 0)
	}
	s[partition/8] |= 1 << (partition % 8)
	return s
}

func (s partitionSet) has(partition int) bool {
	return partition/8 < len(s) && s[partition/8]>>(partition%8)&1 == 1
}

// eviction is the reason why a member may not be in the list.
type eviction struct {
	Version int       `json:"v"`
	Reason  string    `json:"reason"`
	By      string    `json:"by"`
	Until   time.Time `json:"until"`
}

func encode(v any) string { return keyspace.Encode(v) }

func decode[T any](key string, value []byte) (T, error) {
	return keyspace.Decode[T](key, value, valueVersion)
}

// newer returns an error if a value is of a later version than this package knows.
func newer(kv *mvccpb.KeyValue) error {
	if kv == nil {
		return nil
	}
	_, err := decode[struct{}](string(kv.Key), kv.Value)
	if !keyspace.IsNewer(err) {
		return nil
	}
	return fmt.Errorf("%w; use a newer version of this program", err)
}

// unchanged requires that a key is as it was at a revision.
func unchanged(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "<", rev+1)
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}
