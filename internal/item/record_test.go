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
	aging := item.NewKeys("/c/", item.Spec{Name: "orders", Aging: time.Minute})
	agingHigher := item.NewKeys("/c/", item.Spec{Name: "orders", Aging: time.Minute, HigherFirst: true})
	for _, pair := range [][2]string{
		{at(keys, -1, 1, "b"), at(keys, 1, 0, "a")},
		{at(keys, math.MinInt, 1, "b"), at(keys, math.MaxInt, 0, "a")},
		{at(keys, 0, 0, "b"), at(keys, 0, 1, "a")},
		{at(keys, 0, 0, "a"), at(keys, 0, 0, "b")},
		{at(higher, 1, 1, "b"), at(higher, -1, 0, "a")},
		{at(aging, 0, 0, "b"), at(aging, 5, 0, "a")},
		{at(aging, 0, 299*time.Second, "b"), at(aging, 5, 0, "a")},
		{at(aging, 5, 0, "b"), at(aging, 0, 301*time.Second, "a")},
		{at(aging, 5, 0, "a"), at(aging, 0, 300*time.Second, "b")}, // as urgent: that which has waited longer
		{at(aging, 0, 0, "a"), at(aging, 0, 0, "b")},
		{at(aging, -5, 300*time.Second-1, "b"), at(aging, 0, 0, "a")},
		{at(aging, math.MinInt, time.Hour, "b"), at(aging, math.MaxInt, 0, "a")},
		{at(agingHigher, 5, 299*time.Second, "b"), at(agingHigher, 0, 0, "a")},
		{at(agingHigher, 0, 0, "b"), at(agingHigher, 5, 301*time.Second, "a")},
	} {
		if pair[0] >= pair[1] {
			t.Errorf("%s is not before %s", pair[0], pair[1])
		}
		if rank, _, _ := strings.Cut(pair[0], "/"); keys.OrderOf(item.State{Priority: keys.PriorityOf(rank, noon)})[:16] != rank {
			t.Errorf("rank %s is read as %d", rank, keys.PriorityOf(rank, noon))
		}
	}
}

// The priority of an item is read from its rank, for one that lost its state.
func TestPriorityOf(t *testing.T) {
	t.Parallel()
	for _, spec := range []item.Spec{{}, {HigherFirst: true}, {Aging: time.Hour}, {Aging: time.Millisecond, HigherFirst: true}} {
		k := item.NewKeys("/c/", spec)
		for _, priority := range []int{-1000, -1, 0, 1, 100, 20_000} {
			rank := k.OrderOf(item.State{Priority: priority, Vesting: noon})[:16]
			if got := k.PriorityOf(rank, noon); got != priority {
				t.Errorf("%+v: %d is read as %d", spec, priority, got)
			}
		}
	}
}
