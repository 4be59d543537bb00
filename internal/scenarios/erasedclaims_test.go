package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/steps"
	"github.com/etcdclaims/claims/internal/testwork"
)

// hex matches a digest, uuid an id, and audited the record of what an operator did.
const (
	hex     = `[0-9a-f]{32}`
	uuid    = `[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	audited = `audit/\d+-` + uuid
)

var erasedClaims = &feature{
	doc: "protocol.md", from: "## Keys\n", to: "## Why fences work\n", use: useClaims,
	kinds: []erasable{
		{key: "`P own/<key>`", name: `own/(x|leader|w\d+|lock\d)`, within: 10 * sec},
		{key: "`P own/<key>` of a key with slots", name: `own/slots`, within: 20 * sec},
		{key: "`P own/<key>#slot-<i>`", name: `own/slots#slot-\d`, within: 10 * sec},
		{key: "`P own/<key>` of a key that is shared", name: `own/shared`, within: 10 * sec},
		{key: "`P own/<key>#shared-<name>`", name: `own/shared#shared-` + uuid, within: 10 * sec},
		{key: "`P note/<key>`", name: `note/x`, within: sec},
		{key: "`P wait/<digest of key>/<name>`", name: `wait/` + hex + `/` + uuid, within: 10 * sec},
		{name: `wait/` + hex + `/~` + uuid, within: 10 * sec},
		{key: "`P work/<key>`", name: `work/w\d+`, within: 10 * sec},
		{key: "`P session/<instance>/live/<n>`", name: `session/` + uuid + `/live/\d+`, within: 10 * sec},
		{key: "`P session/<instance>/evict/<claim id>`", name: `session/` + uuid + `/evict/` + uuid, within: 10 * sec},
		{key: "`P session/<instance>/ask/<instance>`", name: `session/` + uuid + `/ask/` + uuid, within: 5 * sec},
		{key: "`P session/<instance>/won/<claim id>`", name: `session/` + uuid + `/won/` + uuid, within: 10 * sec},
		{key: "`P void/<ticket>`", name: `void/.+`, within: 10 * sec},
		{key: "`P lock/<digest of owner>/<key>`", name: `lock/` + hex + `/lock\d`, within: 10 * sec},
		{key: "`P audit/<time>-<id>`", name: audited, within: 5 * sec},
		{key: "`P epoch`", name: `epoch`, within: 20 * sec, refused: etcdclaims.ErrRewound, mend: func(w *erasure) {
			_, err := admin.RaiseEpoch(context.Background(), w.raw, "", 7)
			w.ok(err)
		}},
	},
}

// useClaims claims keys in each way, from three processes. Replies of the third are lost now and then.
func useClaims(w *erasure) {
	_, err := admin.RaiseEpoch(context.Background(), w.raw, "", 6)
	w.ok(err)
	for i := range 3 {
		c, h := w.client(etcdclaims.Config{})
		if i == 2 {
			w.start(func() {
				for w.until(3 * sec) {
					h.Inject(claimtest.Fault{On: steps.Take, LoseRequest: true})
					h.Inject(claimtest.Fault{On: steps.HandOver, LoseReply: true})
				}
			})
		}
		w.start(func() { w.claiming(c, "x", "exclusive", sec) })
		if i < 2 {
			w.start(func() { w.claiming(c, "leader", "suspectable", 3*sec, etcdclaims.Suspectable()) })
		}
		w.start(func() { w.claiming(c, "slots", "slots", 2*sec, etcdclaims.Slots(2)) })
		w.start(func() { w.claiming(c, "shared", "shared", sec, etcdclaims.Shared()) })
		w.start(func() { w.working(c) })
		w.start(func() { w.locking(c, fmt.Sprint("owner", i)) })
	}
	c, _ := w.client(etcdclaims.Config{})
	w.start(func() { w.claiming(c, "shared", "exclusive", sec) })
	w.start(func() { // has its turn at the instant at which there is no record
		w.until(4 * sec)
		if cl, err := c.Acquire(w.ctx, "slots"); err == nil {
			w.owning(cl, "slots", "exclusive", 2*sec)
			w.failed(cl.Release(context.Background()))
		}
	})
	w.start(func() {
		for w.until(4 * sec) {
			w.failed(admin.ForceRelease(w.ctx, c, "x", "by hand"))
		}
	})
}

// claiming claims a key again and again, and owns it for some time.
func (w *erasure) claiming(c *etcdclaims.Client, key, mode string, d time.Duration, opts ...etcdclaims.AcquireOption) {
	for w.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(w.ctx, 10*sec)
		cl, err := c.Acquire(ctx, key, opts...)
		cancel()
		if err != nil {
			w.failed(err)
			w.until(100 * time.Millisecond)
			continue
		}
		if key == "x" {
			w.failed(cl.Note(w.ctx, []byte("at work")))
		}
		if w.owning(cl, key, mode, d) {
			w.did(fmt.Sprintf("%s claim of %s", mode, key))
		}
		w.failed(cl.Release(context.Background()))
	}
}

// working does one piece of work after the other, in competition with others.
func (w *erasure) working(c *etcdclaims.Client) {
	for i := 0; w.ctx.Err() == nil; {
		key := fmt.Sprint("w", i)
		err := testwork.Of(c).Run(w.ctx, key, func(ctx context.Context, k *work.Work) error {
			w.owning(k.Claim, key, "work", sec)
			return ctx.Err()
		})
		if err == nil || errors.Is(err, work.ErrDone) {
			w.did("work")
			i++
		} else {
			w.failed(err)
			w.until(100 * time.Millisecond)
		}
	}
}

// locking locks keys by an owner's name, in competition with others.
func (w *erasure) locking(c *etcdclaims.Client, owner string) {
	for i := 0; w.ctx.Err() == nil; i++ {
		fence, ok, err := locks.New(c).TryAcquire(w.ctx, fmt.Sprint("lock", i%2), owner, 3*sec)
		w.failed(err)
		if ok && fence > 0 {
			w.did("lock")
		}
		w.until(400 * time.Millisecond)
		if i%3 == 0 {
			_, err := locks.New(c).ReleaseAll(w.ctx, owner)
			w.failed(err)
		} else if ok {
			_, err := locks.New(c).Release(w.ctx, fmt.Sprint("lock", i%2), owner)
			w.failed(err)
		}
		w.until(100 * time.Millisecond)
	}
}
