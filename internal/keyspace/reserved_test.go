package keyspace_test

import (
	"testing"

	"github.com/etcdclaims/claims/internal/keyspace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReserved(t *testing.T) {
	const prefix = "/p/"
	for _, tt := range []struct {
		key, end string
		want     bool
	}{
		{"/p/own/a", "", true},
		{"/p/epoch", "", true},
		{"/p/", "", true},
		{"/p/sched", "", true},
		{"/p/sched/", "", false},
		{"/p/sched/a", "", false},
		{"/p/queue/a", "", false},
		{"/p/queues/a", "", true},
		{"/o", "", false},
		{"/q", "", false},

		{"/p/sched/", "/p/sched0", false}, // all of the subtree
		{"/p/sched/a", "/p/sched/b", false},
		{"/p/queue/", "/p/queue0", false},
		{"/p/sched/", "/p/sched1", true},
		{"/p/sched/", "/p/session/", true},
		{"/p/sched/", "/q", true},
		{"/p/sched/", "\x00", true},
		{"/p/queue/", "/p/sched0", true},
		{"/p/", "/p0", true},
		{"/a", "/z", true},
		{"/a", "\x00", true},
		{"/a", "/p/", false},
		{"/p0", "/z", false},
		{"/q", "\x00", false},
	} {
		if got := keyspace.Reserved(prefix, tt.key, tt.end); got != tt.want {
			t.Errorf("Reserved(%q, %q, %q) = %v", prefix, tt.key, tt.end, got)
		}
	}
}

func TestRangeEnd(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "a/": "a0", "a\xff": "b", "\xff": "\x00", "": "\x00"} {
		if got := keyspace.RangeEnd(prefix); got != want {
			t.Errorf("RangeEnd(%q) = %q, want %q", prefix, got, want)
		}
	}
}

func TestUnclaimable(t *testing.T) {
	for key, want := range map[string]bool{
		"a": false, "sched": false, "schedule/a": false, "a/sched/b": false, "a#slot": false, "a#shared": false, " a ": false,
		"sched/": true, "queue/a": true, "group/a/b": true, "a#slot-0": true, "a#slot-x/b": true, "#slot-": true, "a#shared-x": true, " ": true, "\u2003": true,
	} {
		if why := keyspace.Unclaimable(key); (why != "") != want {
			t.Errorf("%q: %q", key, why)
		}
	}
}
