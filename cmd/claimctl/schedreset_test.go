package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A mark that is ahead of the clock is mended without etcdctl: doctor has the command. Ticks
// that may have run are not repeated without a flag.
func TestResetMark(t *testing.T) {
	t.Parallel()
	w := worldOn(t, testetcd.Start(t))
	run := func(revision string, ahead time.Duration) {
		s, err := sched.New(w.client("cron-1"), sched.Config{Group: "billing", Now: func() time.Time { return time.Now().Add(ahead) }})
		w.noErr(err)
		w.noErr(s.Add(sched.Job{
			Name: "j", Revision: revision, Schedule: calendar.Must(calendar.Cron("0 * * * *")),
			Handler: func(context.Context, sched.Tick) error { return nil },
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		eventually(t, "the job is registered", func() bool {
			i, err := s.Inspect(t.Context(), "j")
			return err == nil && i.Revision == revision
		})
		cancel()
		w.noErr(<-done)
	}
	run("1", 0)
	w.fails(exitFailure, "the high-water mark is not ahead of the clock", "sched", "reset", "-g", "billing", "j")
	run("2", 48*time.Hour)
	w.finds(w.ok("sched", "show", "-g", "billing", "j"), "is ahead of the clock by")
	w.finds(w.doctor().out, "sched reset -g billing j")
	w.fails(exitUsage, "repeat with --may-repeat", "sched", "reset", "-g", "billing", "j")
	w.finds(w.ok("sched", "reset", "-g", "billing", "j", "--may-repeat"), `put back the mark of "j" to`)
	w.fails(exitFailure, "the high-water mark is not ahead of the clock", "sched", "reset", "-g", "billing", "j")

	// A tick that is decided does not come again.
	next := as[[]instantView](w, "sched", "next", "-g", "billing", "j", "-n", "3")
	resp, err := w.etcd.Get(t.Context(), w.prefix+"sched/", clientv3.WithPrefix())
	w.noErr(err)
	resets := slices.DeleteFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool { return !strings.Contains(string(kv.Key), "/reset/") })
	var value map[string]any
	w.noErr(json.Unmarshal(resets[0].Value, &value))
	value["decided"] = []time.Time{next[1].Nominal}
	text, err := json.Marshal(value)
	w.noErr(err)
	_, err = w.etcd.Put(t.Context(), string(resets[0].Key), string(text))
	w.noErr(err)
	left := as[[]instantView](w, "sched", "next", "-g", "billing", "j", "-n", "2")
	if len(left) != 2 || left[0] != next[0] || left[1] != next[2] {
		t.Errorf("got %v of %v", left, next)
	}
}
