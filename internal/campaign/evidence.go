package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An effect is one that etcd has.
type effect struct {
	id, key     string
	fence       int64
	kind        string
	create, mod int64 // revisions
}

// Evidence is all that the verdict is found from.
type evidence struct {
	journals  []entry
	effects   []effect
	set       []string // its final elements
	queueDone map[string]queueDone
	deaths    map[string]time.Time
	terms     map[string][]*term
	gaps      [][2]int64
}

// term returns the term with a fence, or nil.
func (ev *evidence) term(key string, fence int64) *term {
	i := slices.IndexFunc(ev.terms[key], func(t *term) bool { return t.fence == fence })
	if i < 0 {
		return nil
	}
	return ev.terms[key][i]
}

// inGap reports whether the observer may not have seen what happened at a revision.
func (ev *evidence) inGap(rev int64) bool {
	return slices.ContainsFunc(ev.gaps, func(gap [2]int64) bool { return gap[0] < rev && rev <= gap[1] })
}

// gather reads everything, once the workers have ended and all is quiet.
func gather(ctx context.Context, dir string, m *members, h *ownership) (*evidence, error) {
	ev := &evidence{queueDone: map[string]queueDone{}, terms: h.terms, gaps: h.gaps}
	var err error
	if ev.journals, err = readJournals(dir); err != nil {
		return nil, err
	}
	var odd error
	err = m.all(ctx, effectPrefix, func(name string, value []byte, create, mod, _ int64) {
		key, id, ok := strings.Cut(strings.TrimPrefix(name, effectPrefix), "/")
		var v effectValue
		if err := json.Unmarshal(value, &v); err != nil || !ok {
			odd = fmt.Errorf("effect %s cannot be read: %q", name, value)
			return
		}
		ev.effects = append(ev.effects, effect{id: id, key: key, fence: v.Fence, kind: v.Kind, create: create, mod: mod})
	})
	if err == nil {
		err = odd
	}
	if err != nil {
		return nil, err
	}
	err = m.all(ctx, queueDonePrefix, func(name string, value []byte, _, _, version int64) {
		fence, _ := strconv.ParseInt(string(value), 10, 64)
		ev.queueDone[strings.TrimPrefix(name, queueDonePrefix)] = queueDone{fence, version}
	})
	if err != nil {
		return nil, err
	}
	err = m.all(ctx, fencedSet, func(_ string, value []byte, _, _, _ int64) {
		ev.set = strings.Fields(string(value))
	})
	return ev, err
}
