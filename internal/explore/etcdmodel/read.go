package etcdmodel

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// find returns where the key of a name is or would be. A loop of its own converts no names.
func find[T string | []byte](keys []*Key, name T) (i int, found bool) {
	for j := len(keys); i < j; {
		if m := (i + j) / 2; keys[m].Name < string(name) {
			i = m + 1
		} else {
			j = m
		}
	}
	return i, i < len(keys) && keys[i].Name == string(name)
}

// set puts a key in the place of the one of its name, or removes that one. It changes keys, and returns the key before.
func set(keys []*Key, k *Key, exists bool) (_ []*Key, before *Key) {
	i, found := find(keys, k.Name)
	if found {
		before = keys[i]
		keys = slices.Delete(keys, i, i+1)
	} else {
		before = &Key{Name: k.Name}
	}
	if exists {
		keys = slices.Insert(keys, i, k)
	}
	return keys, before
}

// within returns those of some keys that are in a range, without copying them.
func within(keys []*Key, first, end []byte) []*Key {
	i, found := find(keys, first)
	j := len(keys)
	switch {
	case len(end) == 0 && found:
		j = i + 1
	case len(end) == 0:
		j = i
	case string(end) != "\x00":
		j, _ = find(keys, end)
	}
	return keys[i:max(i, j)]
}

// KV returns the key as a reply has it.
func (k *Key) KV() *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: []byte(k.Name), Value: []byte(k.Value), Lease: k.Lease, CreateRevision: k.Created, ModRevision: k.Modified,
	}
}

// Range reads keys. Count is that of the whole range, whatever the filters and the limit leave of it.
func (s State) Range(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	keys := s.keys
	switch {
	case r.Revision > s.rev:
		return nil, rpctypes.ErrFutureRev
	case r.Revision > 0 && r.Revision < s.compacted:
		return nil, rpctypes.ErrCompacted
	case r.Revision > 0 && r.Revision < s.rev:
		keys = slices.Clone(keys)
		for c := s.log; c != nil && c.Modified > r.Revision; c = c.older {
			keys, _ = set(keys, c.before, c.before.Created > 0)
		}
	}
	keys = within(keys, r.Key, r.RangeEnd)
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: s.rev}, Count: int64(len(keys))}
	keys = slices.DeleteFunc(slices.Clone(keys), func(k *Key) bool {
		created := r.MaxCreateRevision == 0 || k.Created <= r.MaxCreateRevision
		return r.CountOnly || !created || k.Modified < r.MinModRevision
	})
	if r.SortOrder != pb.RangeRequest_NONE {
		slices.SortFunc(keys, func(a, b *Key) int { // sort.Sort in etcd, which orders equal keys alike
			if r.SortOrder == pb.RangeRequest_DESCEND {
				a, b = b, a
			}
			if r.SortTarget == pb.RangeRequest_CREATE {
				return cmp.Compare(a.Created, b.Created)
			}
			return cmp.Compare(a.Name, b.Name)
		})
	}
	if r.Limit > 0 && len(keys) > int(r.Limit) {
		keys, resp.More = keys[:r.Limit], true
	}
	for _, k := range keys {
		kv := k.KV()
		if r.KeysOnly {
			kv.Value, kv.Lease = nil, 0 // the lease as from etcd 3.7 on
		}
		resp.Kvs = append(resp.Kvs, kv)
	}
	return resp, nil
}

// Holds reports whether all conditions hold. One on a range must hold for each key there, and one without keys for a key
// whose numbers are 0. A condition on the value of a key that does not exist is false.
func (s State) Holds(all []*pb.Compare) bool {
	for _, c := range all {
		keys := within(s.keys, c.Key, c.RangeEnd)
		none := len(keys) == 0 && (c.Target == pb.Compare_VALUE || !holdsFor(c, &Key{}))
		if none || slices.ContainsFunc(keys, func(k *Key) bool { return !holdsFor(c, k) }) {
			return false
		}
	}
	return true
}

func holdsFor(c *pb.Compare, k *Key) bool {
	n := 0
	switch c.Target {
	case pb.Compare_CREATE:
		n = cmp.Compare(k.Created, c.GetCreateRevision())
	case pb.Compare_MOD:
		n = cmp.Compare(k.Modified, c.GetModRevision())
	case pb.Compare_VALUE:
		n = cmp.Compare(k.Value, string(c.GetValue()))
	case pb.Compare_LEASE:
		n = cmp.Compare(k.Lease, c.GetLease())
	default:
		panic("the model has no conditions on " + c.Target.String())
	}
	return n == 0 && c.Result == pb.Compare_EQUAL || n != 0 && c.Result == pb.Compare_NOT_EQUAL ||
		n > 0 && c.Result == pb.Compare_GREATER || n < 0 && c.Result == pb.Compare_LESS
}

// Events returns all events that a watch may report from its start revision on, in their order. etcd reports all events
// of a revision, or none yet, and none twice. The caller decides how many arrive now, later or never.
func (s State) Events(w *pb.WatchCreateRequest) (events []*mvccpb.Event, err error) {
	if w.StartRevision <= s.compacted {
		return nil, rpctypes.ErrCompacted
	}
	for c := s.log; c != nil && c.Modified >= w.StartRevision; c = c.older {
		if len(within([]*Key{c.Key}, w.Key, w.RangeEnd)) > 0 {
			ev := &mvccpb.Event{Kv: c.KV()}
			if c.Created == 0 {
				ev.Type = mvccpb.Event_DELETE
			}
			events = append(events, ev)
		}
	}
	slices.Reverse(events)
	return events, nil
}
