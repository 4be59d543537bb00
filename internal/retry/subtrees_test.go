package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// sorted is an etcd with some keys, which can be read.
type sorted struct {
	clientv3.KV
	keys  []string
	reads int
	fails int // this read does
}

var errRead = errors.New("no etcd")

func (s *sorted) Do(_ context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if s.reads++; s.reads == s.fails {
		return clientv3.OpResponse{}, errRead
	}
	var out clientv3.GetResponse
	for _, key := range s.keys {
		if from, end := string(op.KeyBytes()), string(op.RangeBytes()); key == from || key > from && key < end {
			out.Kvs = []*mvccpb.KeyValue{{Key: []byte(key)}}
			break
		}
	}
	return (*clientv3.GetResponse)((*etcdserverpb.RangeResponse)(&out)).OpResponse(), nil
}

func TestSubtrees(t *testing.T) {
	keys := []string{"/p/a", "/p/a/0", "/p/a/name", "/p/ab", "/p/b/x", "/p/c/name", "/p/\xff/name", "/q/c/name"}
	names := func(etcd *sorted, most int) (got []string, err error) {
		for kv, err := range Subtrees(t.Context(), etcd, time.Second, "/p/", func(subtree string) clientv3.Op { return clientv3.OpGet(subtree + "name") }) {
			if err != nil {
				return got, err
			}
			if got = append(got, string(kv.Key)); len(got) == most {
				break
			}
		}
		return got, nil
	}
	want := []string{"/p/a/name", "/p/c/name", "/p/\xff/name"}
	for most := 1; most <= 3; most++ {
		if got, err := names(&sorted{keys: keys}, most); err != nil || !slices.Equal(got, want[:most]) {
			t.Errorf("got %q, %v, want %q", got, err, want[:most])
		}
	}
	etcd := &sorted{keys: keys}
	if got, err := names(etcd, 0); err != nil || !slices.Equal(got, want) || etcd.reads != 11 {
		t.Errorf("got %q, %v with %d reads, want %q with 11", got, err, etcd.reads, want)
	}
	etcd = &sorted{keys: keys}
	var first []string
	for kv, err := range Subtrees(t.Context(), etcd, time.Second, "/p/", nil) {
		if err != nil {
			t.Fatal(err)
		}
		first = append(first, string(kv.Key))
	}
	if want := []string{"/p/a/0", "/p/b/x", "/p/c/name", "/p/\xff/name"}; !slices.Equal(first, want) || etcd.reads != 7 {
		t.Errorf("the first keys are %q with %d reads, want %q with 7", first, etcd.reads, want)
	}
	for fails := 1; fails <= 11; fails++ {
		if _, err := names(&sorted{keys: keys, fails: fails}, 0); !errors.Is(err, errRead) {
			t.Errorf("read %d failed: %v", fails, err)
		}
	}
}
