package sched_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

func TestGroups(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		claims := claimtest.NewClient(t, f.server, etcdclaims.Config{Prefix: prefix, TTL: ttl})
		read := func() (names []string) {
			for name, err := range sched.Groups(t.Context(), claims) {
				noErr(t, err)
				names = append(names, name)
			}
			slices.Sort(names)
			return names
		}
		if got := read(); len(got) != 0 {
			t.Errorf("before any job: %q", got)
		}
		f.do(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Cron("*/5 * * * *"))}, 0)
		for _, group := range []string{"zeta", "default", "<b>"} {
			f.cfg.Group = group
			f.start(0)
		}
		f.until("00:01:00")
		if got := read(); !slices.Equal(got, []string{"<b>", "default", "zeta"}) {
			t.Errorf("groups are %q", got)
		}
		i := f.inspect("a")
		next := i.Upcoming(3)
		if len(next) != 3 || !next[0].Equal(i.Next) || next[2].Sub(next[0]) != 10*time.Minute {
			t.Errorf("upcoming are %v, next is %v", next, i.Next)
		}
		noErr(t, f.console().Pause(t.Context(), "a", "for a test"))
		if next := f.inspect("a").Upcoming(3); len(next) != 0 {
			t.Errorf("a paused job has upcoming %v", next)
		}
		for range sched.Groups(t.Context(), without(t)) {
			t.Error("a passthrough client has a group")
		}
		for _, err := range sched.Groups(t.Context(), nil) {
			wantIs(t, err, etcdclaims.ErrNoClient)
		}
		_, err := sched.New(nil, sched.Config{Group: "g"})
		wantIs(t, err, etcdclaims.ErrNoClient)
		_, err = sched.New(new(etcdclaims.Client), sched.Config{Group: "g"})
		wantIs(t, err, etcdclaims.ErrNoClient)
	})
}

// A job that cannot be read does not hide the groups behind its own.
func TestGroupsBehindAnUnreadableOne(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.do(sched.Job{Name: "j", Schedule: minutely}, 0)
		for _, group := range []string{"a", "b", "c"} {
			f.cfg.Group = group
			f.start(0)
		}
		f.until("00:01:30")
		specs := f.under("/spec/")
		if len(specs) != 3 {
			t.Fatalf("%v", specs)
		}
		noErr(t, second(f.etcd.Put(t.Context(), specs[0].name, `{"v":99}`)))
		claims := claimtest.NewClient(t, f.server, etcdclaims.Config{Prefix: prefix, TTL: ttl})
		names, unread := 0, 0
		for name, err := range sched.Groups(t.Context(), claims) {
			switch {
			case err != nil:
				if !strings.Contains(err.Error(), specs[0].name) {
					t.Error(err)
				}
				unread++
			case name != "":
				names++
			}
		}
		if names != 2 || unread != 1 {
			t.Errorf("%d groups, %d errors", names, unread)
		}
	})
}
