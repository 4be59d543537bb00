package registry

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

var layout = protocol.Layout{Prefix: "/p/", Instance: "i"}

// shared is the mode of a key whose claims belong to a record with the revision.
type shared struct {
	protocol.Mode
	key string
	rev int64
}

func (s shared) Keys() protocol.Keys         { return protocol.Keys{User: s.key} }
func (s shared) Guard(int64) protocol.Record { return protocol.Record{Rev: s.rev, Unchanged: true} }

func held(key, id string, fence int64) protocol.Held {
	return protocol.Held{Layout: layout, Mode: protocol.Exclusive{Layout: layout, Key: key}, Key: key, ID: id, Fence: fence}
}

// registry is a registry whose terms are named.
type registry struct{ Registry[string, string] }

func empty() *registry { return &registry{New[string, string]()} }

func (r *registry) add(t *testing.T, term string, h Holding) {
	t.Helper()
	if !r.Add(term, &h, context.Background()) {
		t.Fatalf("%s was not added", term)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// A key has its newest term, whichever of two is added first, and an older one removes nothing.
func TestTerms(t *testing.T) {
	t.Parallel()
	r := empty()
	r.add(t, "second", Holding{Held: held("a", "2", 2), Since: time.Second})
	r.add(t, "first", Holding{Held: held("a", "1", 1)})
	r.add(t, "other", Holding{Held: held("b", "3", 3), Since: 3 * time.Second})
	same(t, "term", r.Term("a"), "second")
	same(t, "term of no key", r.Term("c"), "")
	r.Remove("first", "a")
	same(t, "after an older term has ended", r.Term("a"), "second")
	all := r.All()
	slices.Sort(all)
	same(t, "all", fmt.Sprint(all), "[other second]")
	n, age := r.Oldest(10 * time.Second)
	same(t, "oldest", fmt.Sprint(n, age), "2 9s")
	n, some := r.Some(1)
	same(t, "some", fmt.Sprint(n, len(some)), "2 1")
	same(t, "made", len(r.Made()), 2)
	same(t, "contended", fmt.Sprint(r.Contended("a"), r.Contended("c")), "true false")
	r.Remove("second", "a")
	same(t, "after its term has ended", r.Term("a"), "")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	same(t, "added when the client is closed", r.Add("late", &Holding{Held: held("a", "4", 4)}, ended), false)
}

// The record of a shared key is known while the client shares it, and after that until it is forgotten.
func TestRecords(t *testing.T) {
	t.Parallel()
	r := empty()
	by := func(key, slot string, rev, epoch int64) protocol.Held {
		return protocol.Held{Mode: shared{key: key, rev: rev}, Key: key + slot, ID: slot, Fence: keyspace.Fence(epoch, rev)}
	}
	r.add(t, "a", Holding{Held: by("k", "#a", 5, 1)})
	r.add(t, "b", Holding{Held: by("k", "#b", 7, 1)})
	r.add(t, "c", Holding{Held: by("k", "#c", 6, 1)})
	same(t, "the newest", r.RecordRev("k", 1), int64(7))
	same(t, "of another epoch", r.RecordRev("k", 2), int64(0))
	same(t, "claims", r.RecordBy("k"), 3)
	r.ForgetRecord("k", 5) // not the newest
	same(t, "still known", r.RecordRev("k", 1), int64(7))
	for _, slot := range []string{"a", "b", "c"} {
		r.Remove(slot, "k#"+slot)
	}
	same(t, "known though no claim is left", fmt.Sprint(r.RecordRev("k", 1), r.RecordBy("k")), "7 0")
	r.ForgetRecord("k", 7)
	same(t, "forgotten", fmt.Sprint(r.RecordRev("k", 1), len(r.records)), "0 0")
	for i := range 2 * mostRecords {
		key := fmt.Sprint(i)
		r.add(t, key, Holding{Held: by(key, "#a", 5, 1)})
		r.Remove(key, key+"#a")
	}
	if n := len(r.records); n > mostRecords {
		t.Errorf("%d records are remembered", n)
	}
}

// Word that a claim was taken away is kept until its attempt has ended, and only then.
func TestTaken(t *testing.T) {
	t.Parallel()
	r := empty()
	taken := func() string { why, _ := r.Taken("id", "k"); return why }
	r.SetTaken("id", "k", "unknown")
	same(t, "of no attempt", taken(), "")
	r.Register("id")
	r.Register("id")
	r.SetTaken("id", "k", "evicted")
	r.Unregister("id")
	same(t, "of an attempt", fmt.Sprint(taken(), " ", r.IsUnderWay("id")), "evicted true")
	r.Unregister("id")
	same(t, "of one that has ended", fmt.Sprint(taken(), " ", r.IsUnderWay("id")), " false")
	same(t, "what is kept", len(r.underWay)+len(r.takings), 0)
}

// Keys that the client had to wait for are a hint, of which there are not too many.
func TestContended(t *testing.T) {
	t.Parallel()
	r := empty()
	for i := range 5000 {
		r.SetContended(fmt.Sprint(i), true)
	}
	same(t, "the last", r.Contended("4999"), true)
	r.SetContended("4999", false)
	same(t, "the last, which is free now", r.Contended("4999"), false)
	if n := len(r.waitedOn); n > 1024 {
		t.Errorf("%d keys are remembered", n)
	}
}

// A claim, a place and a notice in etcd are known by the id of what is held or under way.
func TestKnown(t *testing.T) {
	t.Parallel()
	r := empty()
	r.add(t, "held", Holding{Held: held("k", "held", 1)})
	r.add(t, "noticed", Holding{Held: held("k2", "noticed", 2), Noticed: true})
	r.Register("trying")
	known := r.Known()
	own := func(key, id string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(layout.Own(key)), Value: []byte(protocol.Holder{Claim: id}.Encode())}
	}
	named := func(name string) *mvccpb.KeyValue { return &mvccpb.KeyValue{Key: []byte(name)} }
	for _, tt := range []struct {
		name string
		kv   *mvccpb.KeyValue
		want bool
	}{
		{"its claim", own("k", "held"), true},
		{"its claim on another key", own("other", "held"), false},
		{"another claim on its key", own("k", "ghost"), false},
		{"the claim of an attempt", own("k3", "trying"), true},
		{"no claim", named(layout.Own("k")), false},
		{"the place of an attempt", named(layout.Place("k3", "trying")), true},
		{"the place of a claim", named(layout.Place("k", "held")), false},
		{"the notice of a claim that has one", named(layout.Notice("i", "noticed")), true},
		{"the notice of a claim that has none", named(layout.Notice("i", "held")), false},
	} {
		same(t, tt.name, known.Has(tt.kv, layout), tt.want)
	}
}
