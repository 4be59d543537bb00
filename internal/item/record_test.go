package item_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for value, fine := range map[string]bool{
		`{"v":1,"id":"a","seq":"1"}`: true, `{"v":2,"id":"a","seq":"1"}`: false, `{"v":0,"id":"a","seq":"1"}`: false,
		`{"v":1,"seq":"1"}`: false, `{"v":1,"id":3}`: false, "x": false,
	} {
		if _, err := item.DecodeState(&mvccpb.KeyValue{Key: []byte("k"), Value: []byte(value)}); (err == nil) != fine {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func TestCutAtARune(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", item.MaxErrorBytes)
	if got := item.Cut(long); len(got) > item.MaxErrorBytes || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-8:])
	}
}

// The texts of two items have their order: priority, vesting time, first in.
func TestOrder(t *testing.T) {
	t.Parallel()
	at := func(k item.Keys, priority int, d time.Duration, seq string) string {
		return k.OrderOf(item.State{Priority: priority, Vesting: noon.Add(d), Seq: seq})
	}
	higher := item.NewKeys("/c/", item.Spec{Name: "orders", HigherFirst: true})
	for _, pair := range [][2]string{
		{at(keys, -1, 1, "b"), at(keys, 1, 0, "a")},
		{at(keys, math.MinInt, 1, "b"), at(keys, math.MaxInt, 0, "a")},
		{at(keys, 0, 0, "b"), at(keys, 0, 1, "a")},
		{at(keys, 0, 0, "a"), at(keys, 0, 0, "b")},
		{at(higher, 1, 1, "b"), at(higher, -1, 0, "a")},
	} {
		if pair[0] >= pair[1] {
			t.Errorf("%s is not before %s", pair[0], pair[1])
		}
		if rank, _, _ := strings.Cut(pair[0], "/"); keys.OrderOf(item.State{Priority: keys.PriorityOf(rank)})[:16] != rank {
			t.Errorf("rank %s is read as %d", rank, keys.PriorityOf(rank))
		}
	}
}
