package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/zap"
)

// took returns what a feed has, sorted: each key with its value, or a minus if it is gone.
func took(v *View, f *Feed) string {
	var all []string
	for key, is := range v.Take(f) {
		if all = append(all, key[1:]+"="+is.Value); is.Gone {
			all[len(all)-1] = key[1:] + "-"
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// What a view knew before its Follow began again counts no more: not even for feeds.
func TestViewRestarts(t *testing.T) {
	t.Parallel()
	v := New(nil, nil, "/", zap.NewNop(), nil, func() {})
	v.replace([]*mvccpb.KeyValue{{Key: []byte("/paused/a"), ModRevision: 5}}, 0, 6)
	if got := took(v, v.Subscribe(KindPaused)); got != "paused/a=" || !v.IsSynced() {
		t.Fatalf("read %q", got)
	}
	v.Restart()
	if got := took(v, v.Subscribe(KindPaused)); got != "" || v.CountIn("/paused/") != 0 || v.IsSynced() || v.Latest() != 6 {
		t.Errorf("restarted: %q, %d live, complete: %t, revision %d", got, v.CountIn("/paused/"), v.IsSynced(), v.Latest())
	}
}

// A view has the newest state of each key, in whatever order it hears of them.
func TestViewKeepsTheNewest(t *testing.T) {
	t.Parallel()
	rewound := 0
	v := New(nil, nil, "/", zap.NewNop(), nil, func() { rewound++ })
	f := v.Subscribe(KindPaused)
	want := func(when, keys string, live int) {
		t.Helper()
		if got := took(v, f); got != keys || v.CountIn("/paused/") != live {
			t.Errorf("%s: %q, %d live; want %q, %d", when, got, v.CountIn("/paused/"), keys, live)
		}
	}
	read := func(rev int64, keys ...string) (all []*mvccpb.KeyValue) {
		for _, key := range keys {
			all = append(all, &mvccpb.KeyValue{Key: []byte(key), Value: fmt.Append(nil, rev), ModRevision: rev})
		}
		return all
	}
	v.Put("/paused/a", "5", 5)
	v.Put("/paused/a", "4", 4)
	v.Put("/ask/a", "5", 5)
	v.Remove("/paused/a", 3)
	want("late news", "paused/a=5", 1)
	v.Forget("/paused/a", 4)
	want("forgotten as it was before", "", 1)
	v.Remove("/paused/a", 6)
	v.Put("/paused/a", "5", 5)
	want("removed", "paused/a-", 0)
	if !v.Correct(read(7, "/paused/a"), []string{"/paused/b"}, 6, 8) {
		t.Error("a newer read is not taken over")
	}
	want("read", "paused/a=7", 1)
	if v.Correct(nil, []string{"/paused/a"}, 8, 7) {
		t.Error("a read of an etcd that was restored is taken over")
	}
	want("restored", "", 1)
	v.replace(read(2, "/paused/a"), 8, 3)
	if want("read after the restore", "paused/a=2", 1); rewound != 1 || v.Latest() != 3 {
		t.Errorf("rewound %d times, to %d", rewound, v.Latest())
	}
	v.replace(nil, 3, 4)
	want("gone at the next read", "paused/a-", 0)
}
