package txn

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Kvs returns what the i-th operation of a reply read.
func Kvs(resp *clientv3.TxnResponse, i int) []*mvccpb.KeyValue {
	return resp.Responses[i].GetResponseRange().Kvs
}

// First returns what the i-th operation of a reply read first, or nil.
func First(resp *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if kvs := Kvs(resp, i); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// Count returns how many keys the i-th operation of a reply has counted.
func Count(resp *clientv3.TxnResponse, i int) int64 {
	return resp.Responses[i].GetResponseRange().Count
}

// Inner returns the reply to the i-th operation, a nested transaction.
func Inner(resp *clientv3.TxnResponse, i int) *clientv3.TxnResponse {
	return (*clientv3.TxnResponse)(resp.Responses[i].GetResponseTxn())
}

// Read returns the reply to a read, the i-th operation, as one by itself.
func Read(resp *clientv3.TxnResponse, i int) *clientv3.GetResponse {
	got := resp.Responses[i].GetResponseRange()
	got.Header = resp.Header
	return (*clientv3.GetResponse)(got)
}
