package scenarios_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const inSched = `sched/` + hex + `/`

var erasedSchedules = &feature{
	doc: "scheduling.md", from: "length.\n", to: "```", use: useSchedules,
	kinds: []erasable{
		{key: "`def/J`", name: inSched + `def/` + hex, within: 10 * sec, mend: define},
		{key: "`now/defined/J`", name: inSched + `now/defined/` + hex, within: 10 * sec, mend: define},
		{key: "`spec/J`", name: inSched + `spec/` + hex, within: 20 * sec},
		{key: "`high/J`", name: inSched + `high/` + hex, within: 20 * sec},
		{key: "`now/ready/J/<id>`", name: inSched + `now/ready/` + hex + `(\.backfill)?/.+`, within: 20 * sec},
		{key: "`now/run/J/<id>`", name: inSched + `now/run/` + hex + `(\.backfill)?/.+`, within: 20 * sec},
		{key: "`now/slot/<digest of limit>/<n>`", name: inSched + `now/slot/` + hex + `/\d+`, within: 10 * sec},
		{key: "`now/paused/J`", name: inSched + `now/paused/` + hex, within: 10 * sec},
		{key: "`now/cancel/J`", name: inSched + `now/cancel/` + hex, within: 10 * sec},
		{key: "`now/cancel/J/newer`", name: inSched + `now/cancel/` + hex + `/newer`, within: 20 * sec},
		{key: "`now/withdraw/J`", name: inSched + `now/withdraw/` + hex, within: 10 * sec},
		{key: "`now/reset/J`", name: inSched + `now/reset/` + hex, within: 10 * sec},
		{key: "`now/stuck/J/<id>`", name: inSched + `now/stuck/` + hex + `/.+`, within: 20 * sec},
		{key: "`now/ask/J/<uuid>`", name: inSched + `now/ask/` + hex + `/.+`, within: 10 * sec},
		{key: "`now/halt/<digest of tag>`", name: inSched + `now/halt/` + hex, within: 20 * sec},
		{key: "`now/heir/<instance>`", name: inSched + `now/heir/` + uuid, rare: true},
		{key: "`past/J/<time>-<id>`", name: inSched + `past/` + hex + `/.+`, within: 10 * sec},
		{key: "`fail/J`", name: inSched + `fail/` + hex, within: 10 * sec},
		{name: `own/sched/default/owner`, within: 10 * sec},
		{name: `own/sched/default/(job|run)/.+`, within: 20 * sec},
		{name: `own/sched/default/op/.+`, within: 10 * sec},
		{name: `session/` + uuid + `/live/\d+`, within: 20 * sec},
		{name: `session/` + uuid + `/(won|evict|ask)/` + uuid + `|wait/` + hex + `/` + uuid + `|note/sched/.+|void/.+`, within: 10 * sec},
		{name: audited, rare: true},
	},
}

// console is the scheduler of the operator.
func (w *erasure) console() *sched.Scheduler {
	c, _ := w.client(etcdclaims.Config{})
	s, err := sched.New(c, sched.Config{Group: "default"})
	w.ok(err)
	return s
}

func define(w *erasure) {
	_, err := w.console().Define(context.Background(), sched.Definition{Name: "defined", Schedule: "@every 2s", Kind: "kind"})
	w.ok(err)
}

// useSchedules runs jobs of many kinds in two processes, and has an operator.
func useSchedules(w *erasure) {
	for range 2 {
		c, _ := w.client(etcdclaims.Config{})
		s, err := sched.New(c, sched.Config{Group: "default"})
		w.ok(err)
		every := func(d time.Duration) calendar.Schedule { return calendar.Must(calendar.Every(d, 0)) }
		for _, j := range []sched.Job{
			{Name: "tick", Schedule: every(2 * sec), Handler: w.tick(c, 300*time.Millisecond)},
			{Name: "slow", Schedule: every(3 * sec), Overlap: sched.BufferOne{}, Handler: w.tick(c, 5*sec)},
			{Name: "newest", Schedule: every(4 * sec), Overlap: sched.CancelRunning{}, Handler: w.tick(c, 3900*time.Millisecond)},
			{
				Name: "twice", Schedule: every(3 * sec), Guarantee: sched.AtLeastOnce, Handler: w.tick(c, sec),
				Limits: map[string]int{"few": 1},
			},
			{Name: "fails", Schedule: every(3 * sec), Retry: sched.Retry{Max: 1}, PauseOnFailure: 100, Handler: func(context.Context, sched.Tick) error { return errors.New("no") }},
			{Name: "deaf", Schedule: every(10 * sec), Overlap: sched.CancelRunning{}, Handler: func(context.Context, sched.Tick) error {
				w.until(14 * sec)
				w.did("deaf")
				return nil
			}},
			{Name: "operated", Tags: []string{"tag"}, Schedule: every(2 * sec), Handler: w.tick(c, sec)},
			{Name: "reset", Schedule: every(2 * sec), Handler: func(context.Context, sched.Tick) error {
				w.did("reset")
				return nil
			}},
		} {
			w.ok(s.Add(j))
		}
		w.ok(s.Handle("kind", func(ctx context.Context, t sched.Tick, _ json.RawMessage) error {
			return w.tick(c, 300*time.Millisecond)(ctx, t)
		}))
		w.start(func() { w.failed(s.Run(w.ctx)) })
	}
	define(w)
	s := w.console()
	w.start(func() { // as if a clock had been ahead
		w.until(5 * sec)
		high := etcdclaims.DefaultPrefix + "sched/" + keyspace.Digest("default") + "/high/" + keyspace.Digest("reset")
		_, err := w.raw.Put(w.ctx, high, keyspace.Instant(time.Now().Add(time.Hour)))
		w.failed(err)
		_, err = s.ResetMark(w.ctx, "reset", "by hand", true)
		w.failed(err)
	})
	w.start(func() {
		for w.until(3 * sec) {
			_, err := s.RunNow(w.ctx, "operated")
			w.failed(err)
			w.failed(s.Pause(w.ctx, "operated", "by hand"))
			w.failed(s.PauseTag(w.ctx, "tag", "by hand"))
			w.until(sec)
			w.failed(s.Resume(w.ctx, "operated"))
			w.failed(s.ResumeTag(w.ctx, "tag"))
			w.failed(s.Cancel(w.ctx, "operated", "by hand"))
			_, err = s.Backfill(w.ctx, "operated", time.Now().Add(-20*sec), time.Now().Add(-14*sec), sched.BufferAll{})
			w.failed(err)
		}
	})
}

// tick takes some time, and then has its effect, under the fence of its run.
func (w *erasure) tick(c *etcdclaims.Client, takes time.Duration) sched.Handler {
	return func(ctx context.Context, t sched.Tick) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes):
		}
		token, _ := fencing.FromContext(ctx)
		put := clientv3.OpPut(fmt.Sprintf("%s%s/%s/%d", effects, t.Job, t.ID(), t.Attempt), token.Key)
		resp, err := w.raw.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(c.OwnKey(token.Key)), "=", token.Fence)).Then(put).Commit()
		if err == nil && resp.Succeeded {
			w.did(t.Job)
		}
		return err
	}
}
