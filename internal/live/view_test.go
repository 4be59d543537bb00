package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/tick"
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

// A key that was deleted stays gone in the view whatever comes late: news of the key that is
// older than the newest complete read, or an older read.
func TestLateRepliesBringNothingBack(t *testing.T) {
	t.Parallel()
	const key = "/paused/a"
	old := []*mvccpb.KeyValue{{Key: []byte(key), ModRevision: 5}}
	for name, late := range map[string]func(v *View){
		"event":         func(v *View) { v.Put(key, "", 5) },
		"own change":    func(v *View) { v.PutTick(tick.Put{Key: key}, 5) },
		"read of a job": func(v *View) { v.Correct(old, nil, 5, 6) },
		"complete read": func(v *View) { v.replace(old, 5, 6) },
	} {
		v := New(nil, nil, "/", zap.NewNop(), nil, func() {})
		v.replace(old, 0, 5)
		v.Remove(key, 7)
		v.replace(nil, 7, 8)
		f := v.Subscribe(KindPaused)
		if late(v); !v.Get(key).Gone || v.CountIn("/paused/") != 0 || took(v, f) != "" {
			t.Errorf("%s: %+v, %d live", name, v.Get(key), v.CountIn("/paused/"))
		}
		v.Put(key, "", 9)
		if got := took(v, f); got != "paused/a=" {
			t.Errorf("%s: put anew: %q", name, got)
		}
	}
}

// A key of a low revision counts if the complete reads before cannot know of it: etcd was
// restored, or the view has begun anew.
func TestOldKeysOfARestoredEtcd(t *testing.T) {
	t.Parallel()
	old := []*mvccpb.KeyValue{{Key: []byte("/paused/a"), ModRevision: 5}}
	for name, next := range map[string]func(v *View){
		"to a lower revision":     func(v *View) { v.replace(old, 20, 6) },
		"to a higher revision":    func(v *View) { v.replace(old, 20, 1000) },
		"lower, heard of later":   func(v *View) { v.replace(nil, 20, 4); v.Put("/paused/a", "", 5) },
		"higher, read with a job": func(v *View) { v.Correct(old, nil, 20, 1000) },
		"read after a restart":    func(v *View) { v.Restart(); v.replace(old, 20, 20) },
	} {
		v := New(nil, nil, "/", zap.NewNop(), nil, func() {})
		v.replace(nil, 0, 20)
		if next(v); v.Get("/paused/a").Gone || v.CountIn("/paused/") != 1 {
			t.Errorf("%s: %+v, %d live", name, v.Get("/paused/a"), v.CountIn("/paused/"))
		}
	}
}
