package scenarios_test

import (
	"context"
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
)

const inGroup = `group/` + hex + `/`

var erasedGroups = &feature{
	doc: "groups.md", from: "## Keys\n", to: "The claims are ", use: useGroup,
	kinds: []erasable{
		{key: "`spec`", name: inGroup + `spec`, within: 20 * sec},
		{key: "`member/<name>`", name: inGroup + `member/.+`, within: 20 * sec},
		{key: "`away/<name>`", name: inGroup + `away/.+`, within: 20 * sec},
		{key: "`evicted/<name>`", name: inGroup + `evicted/.+`, within: 20 * sec},
		{key: "`process/<instance>`", name: inGroup + `process/.+`, within: 20 * sec},
		{name: `own/group/g/member/.+`, within: 20 * sec},
		{name: `own/group/g/partition/\d+`, within: 10 * sec},
		{name: `session/` + uuid + `/live/\d+`, within: 20 * sec},
		{name: `session/` + uuid + `/won/` + uuid, within: 10 * sec},
		{name: `session/` + uuid + `/(evict|ask)/` + uuid + `|note/group/.+|void/.+`, rare: true},
		{name: audited, rare: true},
		{name: `wait/` + hex + `/` + uuid, within: 10 * sec},
	},
}

// useGroup has two members that stay, one that comes and goes, and one that is evicted now and then.
func useGroup(w *erasure) {
	for _, name := range []string{"a", "b", "away", "evicted"} {
		c, _ := w.client(etcdclaims.Config{})
		cfg := group.Config{Group: "g", Partitions: 6, Name: name, Cooldown: sec}
		if name == "away" {
			cfg.Away = 20 * sec
		}
		w.start(func() {
			for w.ctx.Err() == nil {
				m, err := group.Join(w.ctx, c, cfg, w.serve)
				if err != nil {
					w.failed(err)
					w.until(sec)
					continue
				}
				stay, cancel := context.WithCancel(w.ctx)
				if name == "away" {
					stay, cancel = context.WithTimeout(w.ctx, 12*sec)
				}
				select {
				case <-stay.Done():
				case <-m.Done():
					w.failed(m.Err())
				}
				cancel()
				w.failed(m.Leave(context.Background()))
				w.until(3 * sec)
			}
		})
	}
	c, _ := w.client(etcdclaims.Config{})
	w.start(func() {
		for w.until(6 * sec) {
			v, err := group.Open(w.ctx, c, "g")
			if err != nil {
				w.failed(err)
				continue
			}
			w.failed(v.Evict(w.ctx, "evicted", "by hand", 5*sec))
			v.Close()
		}
	})
}

// serve owns its partition until its context ends.
func (w *erasure) serve(ctx context.Context, partition int, claim *etcdclaims.Claim) error {
	for ctx.Err() == nil {
		if !w.owning(claim, fmt.Sprint("partition ", partition), "exclusive", time.Second) {
			return ctx.Err()
		}
		w.did(fmt.Sprint("partition ", partition))
	}
	return ctx.Err()
}
