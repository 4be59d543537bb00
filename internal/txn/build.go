package txn

import (
	"github.com/etcdclaims/claims/internal/keyspace"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The functions below build the parts of a request. Each allocates a message and
// what it wraps together, because a request has many small messages.

// Roomy returns an empty transaction with room for what most claims have.
func Roomy() *pb.TxnRequest {
	m := &struct {
		pb.TxnRequest
		compare [4]*pb.Compare
		success [3]*pb.RequestOp
		failure [1]*pb.RequestOp
	}{}
	m.Compare, m.Success, m.Failure = m.compare[:0], m.success[:0], m.failure[:0]
	return &m.TxnRequest
}

// CreatedAt returns the condition that the key's CreateRevision is rev. With 0 the
// key must not exist.
func CreatedAt(key []byte, rev int64) *pb.Compare {
	m := &struct {
		pb.Compare
		u pb.Compare_CreateRevision
	}{}
	m.u.CreateRevision = rev
	m.Key, m.Target, m.TargetUnion = key, pb.Compare_CREATE, &m.u
	return &m.Compare
}

// with returns a condition of equality as one of another kind.
func with(r pb.Compare_CompareResult, c *pb.Compare) *pb.Compare {
	c.Result = r
	return c
}

// CreatedAfter returns the condition that the key's CreateRevision is greater than rev.
func CreatedAfter(key []byte, rev int64) *pb.Compare {
	return with(pb.Compare_GREATER, CreatedAt(key, rev))
}

// CreatedBefore returns the condition that the key's CreateRevision is less than rev. It
// holds for a key that does not exist.
func CreatedBefore(key []byte, rev int64) *pb.Compare {
	return with(pb.Compare_LESS, CreatedAt(key, rev))
}

// NoneUnder returns the condition that no key has the prefix.
func NoneUnder(prefix string) *pb.Compare {
	n := len(prefix)
	both := append(append(make([]byte, 0, 2*n), prefix...), prefix...)
	c := CreatedAt(both[:n:n], 0)
	c.RangeEnd = keyspace.EndOf(both[n:])
	return c
}

// NonePutAfter returns the condition that no key with the prefix was put after the revision.
func NonePutAfter(prefix string, rev int64) *pb.Compare {
	c := ModifiedBefore([]byte(prefix), rev+1)
	c.RangeEnd = keyspace.EndOf([]byte(prefix))
	return c
}

// NoneIn returns the condition that there is no key from the first on and before the end.
func NoneIn(first, end string) *pb.Compare {
	c := CreatedAt([]byte(first), 0)
	c.RangeEnd = []byte(end)
	return c
}

// ModifiedAt returns the condition that the key's ModRevision is rev.
func ModifiedAt(key []byte, rev int64) *pb.Compare {
	m := &struct {
		pb.Compare
		u pb.Compare_ModRevision
	}{}
	m.u.ModRevision = rev
	m.Key, m.Target, m.TargetUnion = key, pb.Compare_MOD, &m.u
	return &m.Compare
}

// NotModifiedAt returns the condition that the key's ModRevision is not rev.
func NotModifiedAt(key []byte, rev int64) *pb.Compare {
	return with(pb.Compare_NOT_EQUAL, ModifiedAt(key, rev))
}

// ModifiedAfter returns the condition that the key's ModRevision is greater than rev.
func ModifiedAfter(key []byte, rev int64) *pb.Compare {
	return with(pb.Compare_GREATER, ModifiedAt(key, rev))
}

// ModifiedBefore returns the condition that the key's ModRevision is less than rev. It holds for
// a key that does not exist.
func ModifiedBefore(key []byte, rev int64) *pb.Compare {
	return with(pb.Compare_LESS, ModifiedAt(key, rev))
}

// ValueIs returns the condition that the key has the value.
func ValueIs(key []byte, value string) *pb.Compare {
	u := &pb.Compare_Value{Value: []byte(value)}
	return &pb.Compare{Key: key, Target: pb.Compare_VALUE, TargetUnion: u}
}

// ValueBefore returns the condition that the key has a value that is less. It does not hold for a
// key that does not exist.
func ValueBefore(key []byte, value string) *pb.Compare {
	return with(pb.Compare_LESS, ValueIs(key, value))
}

// OnLease returns the condition that the key is on the lease.
func OnLease[L ~int64](key []byte, id L) *pb.Compare {
	m := &struct {
		pb.Compare
		u pb.Compare_Lease
	}{}
	m.u.Lease = int64(id)
	m.Key, m.Target, m.TargetUnion = key, pb.Compare_LEASE, &m.u
	return &m.Compare
}

// Put puts the key on the lease. A lease of 0 means none.
func Put[L ~int64](key []byte, value string, id L) *pb.RequestOp {
	m := &struct {
		pb.RequestOp
		u   pb.RequestOp_RequestPut
		put pb.PutRequest
	}{}
	m.put.Key, m.put.Value, m.put.Lease = key, []byte(value), int64(id)
	m.u.RequestPut = &m.put
	m.Request = &m.u
	return &m.RequestOp
}

// Get reads the key.
func Get(key []byte) *pb.RequestOp {
	m := &struct {
		pb.RequestOp
		u   pb.RequestOp_RequestRange
		get pb.RangeRequest
	}{}
	m.get.Key = key
	m.u.RequestRange = &m.get
	m.Request = &m.u
	return &m.RequestOp
}

// Range reads all keys with the prefix.
func Range(prefix string) *pb.RequestOp {
	op := Get([]byte(prefix))
	op.GetRequestRange().RangeEnd = []byte(keyspace.RangeEnd(prefix))
	return op
}

// Delete deletes the key.
func Delete(key []byte) *pb.RequestOp {
	m := &struct {
		pb.RequestOp
		u   pb.RequestOp_RequestDeleteRange
		del pb.DeleteRangeRequest
	}{}
	m.del.Key = key
	m.u.RequestDeleteRange = &m.del
	m.Request = &m.u
	return &m.RequestOp
}

// Nest makes a transaction an operation of another.
func Nest(in *pb.TxnRequest) *pb.RequestOp {
	m := &struct {
		pb.RequestOp
		u pb.RequestOp_RequestTxn
	}{}
	m.u.RequestTxn = in
	m.Request = &m.u
	return &m.RequestOp
}
