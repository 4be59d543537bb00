package etcdmodel

import (
	"cmp"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Range reads keys outside of a transaction.
func (s State) Range(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := s.readable(r); err != nil {
		return nil, err
	}
	return s.read(r), nil
}

func (s State) readable(r *pb.RangeRequest) error {
	switch {
	case r.Revision > s.rev:
		return rpctypes.ErrFutureRev
	case r.Revision != 0 && r.Revision < s.compacted:
		return rpctypes.ErrCompacted
	}
	return nil
}

// within returns those of some keys that are in a range, without copying them.
func within(keys []*entry, first, end []byte) []*entry {
	i, found := find(keys, string(first))
	j := len(keys)
	switch {
	case len(end) == 0 && found:
		j = i + 1
	case len(end) == 0:
		j = i
	case string(end) != "\x00":
		j, _ = find(keys, string(end))
	}
	return keys[i:max(i, j)]
}

// read reads keys. Count is that of the whole range, whatever the filters leave of it. A limit applies
// before sorting if the request names a target to sort by, but no order.
func (s State) read(r *pb.RangeRequest) *pb.RangeResponse {
	kvs := within(s.at(r.Revision), r.Key, r.RangeEnd)
	resp := &pb.RangeResponse{Header: s.header(), Count: int64(len(kvs))}
	if r.CountOnly {
		return resp
	}
	all := r.MinModRevision|r.MaxModRevision|r.MinCreateRevision|r.MaxCreateRevision == 0
	if r.Limit > 0 && all && r.SortOrder == pb.RangeRequest_NONE {
		kvs = kvs[:min(len(kvs), int(r.Limit)+1)]
	}
	outside := func(n, least, most int64) bool { return n < least || most != 0 && n > most }
	kvs = slices.DeleteFunc(slices.Clone(kvs), func(e *entry) bool {
		return outside(e.modified, r.MinModRevision, r.MaxModRevision) ||
			outside(e.created, r.MinCreateRevision, r.MaxCreateRevision)
	})
	arrange(kvs, r)
	if r.Limit > 0 && len(kvs) > int(r.Limit) {
		kvs, resp.More = kvs[:r.Limit], true
	}
	for _, e := range kvs {
		kv := e.kv()
		if r.KeysOnly {
			kv.Value = nil
			if r.SortTarget != pb.RangeRequest_VALUE {
				kv.Lease = 0 // as from etcd 3.7 on
			}
		}
		resp.Kvs = append(resp.Kvs, kv)
	}
	return resp
}

// arrange sorts keys, which are in the order of their names. Equal ones get the order that sort.Sort
// gives them in etcd: slices.SortFunc is the same algorithm.
func arrange(kvs []*entry, r *pb.RangeRequest) {
	target := pb.Compare_CompareTarget(r.SortTarget - 1) // those that have an order are numbered alike
	switch descend := r.SortOrder == pb.RangeRequest_DESCEND; {
	case r.SortTarget == pb.RangeRequest_KEY && descend:
		slices.Reverse(kvs)
	case r.SortTarget != pb.RangeRequest_KEY && descend:
		slices.SortFunc(kvs, func(a, b *entry) int { return order(target, b, a) })
	case r.SortTarget != pb.RangeRequest_KEY:
		slices.SortFunc(kvs, func(a, b *entry) int { return order(target, a, b) })
	}
}

// holds evaluates a condition: for each key of a range, and for one without keys as for a key whose
// numbers are 0. A condition on the value of a key that does not exist is false.
func (s State) holds(c *pb.Compare) bool {
	kvs := within(s.keys, c.Key, c.RangeEnd)
	if len(kvs) == 0 {
		return c.Target != pb.Compare_VALUE && holdsFor(c, &entry{})
	}
	return !slices.ContainsFunc(kvs, func(e *entry) bool { return !holdsFor(c, e) })
}

func holdsFor(c *pb.Compare, e *entry) bool {
	n := order(c.Target, e, &entry{
		version: c.GetVersion(), created: c.GetCreateRevision(), modified: c.GetModRevision(),
		value: string(c.GetValue()), lease: c.GetLease(),
	})
	switch c.Result {
	case pb.Compare_EQUAL:
		return n == 0
	case pb.Compare_NOT_EQUAL:
		return n != 0
	case pb.Compare_GREATER:
		return n > 0
	}
	return n < 0
}

// order compares what a condition names of two keys.
func order(target pb.Compare_CompareTarget, a, b *entry) int {
	switch target {
	case pb.Compare_VERSION:
		return cmp.Compare(a.version, b.version)
	case pb.Compare_CREATE:
		return cmp.Compare(a.created, b.created)
	case pb.Compare_MOD:
		return cmp.Compare(a.modified, b.modified)
	case pb.Compare_VALUE:
		return strings.Compare(a.value, b.value)
	}
	return cmp.Compare(a.lease, b.lease)
}

// Events returns all events that a watch may report, from its start revision to the present one, in
// their order. etcd reports all events of a revision, or none yet, and none twice. The caller decides
// how many arrive now, later or never.
func (s State) Events(w *pb.WatchCreateRequest) (events []*mvccpb.Event, err error) {
	from := cmp.Or(w.StartRevision, s.rev+1)
	if from < s.compacted {
		return nil, rpctypes.ErrCompacted
	}
	for c := s.log; c != nil && c.rev >= from; c = c.older {
		ev := &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(c.name), ModRevision: c.rev}}
		filter := pb.WatchCreateRequest_NODELETE
		if c.after != nil {
			ev.Type, ev.Kv, filter = mvccpb.Event_PUT, c.after.kv(), pb.WatchCreateRequest_NOPUT
		}
		if len(within([]*entry{{name: c.name}}, w.Key, w.RangeEnd)) == 0 || slices.Contains(w.Filters, filter) {
			continue
		}
		if w.PrevKv && (c.after == nil || c.after.created != c.rev) {
			ev.PrevKv = c.before.kv()
		}
		events = append(events, ev)
	}
	slices.Reverse(events)
	return events, nil
}
