package main

import (
	"context"
	"encoding/json"
	"fmt"
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
	sets      map[string][]string // the final elements, by kind of effect
	submitted []string            // items that etcd has acknowledged
	done      map[string]int64    // how often each item was put as done
	queueDone map[string]queueDone
	sections  map[string][]sectionLine
	deaths    map[string]time.Time
	terms     map[string][]*term
	gaps      [][2]int64
}

// gather reads everything, once the workers have ended and all is quiet.
func gather(ctx context.Context, dir string, m *members, h *ownership) (*evidence, error) {
	ev := &evidence{sets: map[string][]string{}, done: map[string]int64{}, queueDone: map[string]queueDone{}, terms: h.terms, gaps: h.gaps}
	var err error
	if ev.journals, err = readJournals(dir); err != nil {
		return nil, err
	}
	if ev.sections, err = readSections(dir); err != nil {
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
	err = m.all(ctx, donePrefix, func(name string, _ []byte, _, _, version int64) {
		ev.done[strings.TrimPrefix(name, donePrefix)] = version
	})
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
	for kind, set := range map[string]string{kindSet: fencedSet, kindPlain: plainSet} {
		err := m.all(ctx, set, func(_ string, value []byte, _, _, _ int64) {
			ev.sets[kind] = strings.Fields(string(value))
		})
		if err != nil {
			return nil, err
		}
	}
	return ev, nil
}
