package group

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// list is what the keys of a group have about its members. It is not changed once it is
// made.
type list struct {
	spec     specState
	members  map[string]MemberInfo // by name, also those that are away
	revs     map[string]int64      // by name of the member that is there: revision of its entry
	termOf   map[string]string     // and the id of its claim
	evicted  map[string]*EvictedError
	reserved map[string]reservation // by name of the member that is away
	process  map[string]MemberInfo  // by instance, also of those that are off the list
	strange  []error                // entries that cannot be read
	later    error                  // of a member whose entry is of a later version, and unknown
}

// specState is what can be read of the number of partitions.
type specState struct {
	there      bool
	partitions int // 0: it is not there, or cannot be read
}

// reservation has the partitions of a member that went away, and the revision at which it did.
type reservation struct {
	rev        int64
	partitions string // a partitionSet, which cannot be compared
}

// newList reads the keys below the root of a group.
func newList(root string, kvs []*mvccpb.KeyValue) list {
	l := list{
		members: make(map[string]MemberInfo), revs: make(map[string]int64), termOf: make(map[string]string),
		evicted: make(map[string]*EvictedError), reserved: make(map[string]reservation),
		process: make(map[string]MemberInfo),
	}
	for _, kv := range kvs {
		dir, name, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), root), "/")
		switch dir + "/" {
		case dirSpec:
			if s, _ := decode[spec](string(kv.Key), kv.Value); name == "" {
				l.spec = specState{there: true, partitions: s.Partitions}
			}
		case dirMember, dirAway: // away comes first: the entry of a member that is back is the later one
			e, err := readEntry(kv)
			if err != nil {
				l.strange = append(l.strange, err)
				if later := newer(kv); later != nil {
					l.later = later
				}
				continue
			}
			if have, ok := l.members[name]; !ok || have.Instance == "" {
				l.members[name] = e.info(name)
			}
			if dir+"/" == dirMember {
				l.revs[name], l.termOf[name] = kv.ModRevision, e.Claim
			}
			if dir+"/" == dirAway && len(e.Partitions) > 0 {
				l.reserved[name] = reservation{kv.ModRevision, string(e.Partitions)}
			}
		case dirEvicted:
			l.evicted[name] = readEviction(name, kv)
		case dirProcess:
			if e, err := readEntry(kv); err == nil && e.Name != "" && e.Instance == name {
				l.process[e.Instance] = e.info(e.Name)
			}
		}
	}
	return l
}

// readEntry reads the entry of a member. Of a later version it takes what plans need.
func readEntry(kv *mvccpb.KeyValue) (entry, error) {
	later := newer(kv)
	if later == nil {
		return decode[entry](string(kv.Key), kv.Value)
	}
	var e struct {
		Instance *string `json:"instance"`
		Weight   *int    `json:"weight"`
	}
	if json.Unmarshal(kv.Value, &e) != nil || e.Weight == nil || *e.Weight < 0 || *e.Weight > maxWeight {
		return entry{}, later
	}
	out := entry{Weight: *e.Weight}
	if e.Instance != nil {
		out.Instance = *e.Instance
	}
	return out, nil
}

// readEviction reads an eviction. The key alone keeps the name off the list, whatever can
// be read of its value.
func readEviction(name string, kv *mvccpb.KeyValue) *EvictedError {
	var e eviction
	_ = json.Unmarshal(kv.Value, &e)
	return &EvictedError{Member: name, Reason: e.Reason, By: e.By, Until: e.Until}
}

// equal compares what plans are made of. Processes only give owners their names.
func (l list) equal(other list) bool {
	return l.spec == other.spec && maps.Equal(l.members, other.members) && maps.Equal(l.revs, other.revs) &&
		maps.Equal(l.reserved, other.reserved) &&
		maps.EqualFunc(l.evicted, other.evicted, func(a, b *EvictedError) bool { return *a == *b })
}

// assign returns the state of the group, given the owners of its partitions, without their
// names, and the members by their instances. It keeps the owners.
func (l list) assign(owners []Owner, known map[string]MemberInfo) Assignment {
	a, listed := Assignment{Owners: owners}, l.listed()
	for name := range listed {
		a.Members = append(a.Members, l.members[name])
	}
	slices.SortFunc(a.Members, func(a, b MemberInfo) int { return cmp.Compare(a.Name, b.Name) })
	reserved := l.reservations(listed, len(owners))
	for partition := range owners {
		owners[partition].Member, owners[partition].Reserved = known[owners[partition].Instance].Name, ""
		if !listed[owners[partition].Member] {
			owners[partition].Reserved = reserved[partition]
		}
	}
	return a
}

// listed returns the names that the plan is about: those that are not evicted.
func (l list) listed() map[string]bool {
	names := make(map[string]bool, len(l.members))
	for name := range l.members {
		if l.evicted[name] == nil {
			names[name] = true
		}
	}
	return names
}

// reservations returns the name of the member that is away, by partition. Of several that had
// the partition it is the one that left last.
func (l list) reservations(listed map[string]bool, partitions int) []string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(l.reserved)), func(name string) bool {
		return !listed[name] || l.members[name].Instance != ""
	})
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(l.reserved[a].rev, l.reserved[b].rev) })
	of := make([]string, partitions)
	for _, name := range names {
		set := partitionSet(l.reserved[name].partitions)
		for partition := range min(partitions, 8*len(set)) {
			if set.has(partition) {
				of[partition] = name
			}
		}
	}
	return of
}
