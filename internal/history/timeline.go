package history

import (
	"cmp"
	"slices"
	"time"
)

// timeline is a history sorted by key, with each return joined to its call.
type timeline struct {
	events []event
	keys   []*keyTimeline // in the order of keys
	open   []event        // calls without a return, of processes that did not die
}

// keyTimeline contains the records of one key, in the order of calls; terms are in
// the order of fences.
type keyTimeline struct {
	key      string
	terms    []*term
	effects  []*call
	releases []*call
	takes    []*call // only those that may have been carried out
	checks   []event

	granted map[int64]*term // by fence; of two with one, the first
	ended   map[int64]int64 // by fence, when it first was
}

// call is a call and its outcome. One without a return is unknown.
type call struct {
	event
	ret     event // no number if there was none
	outcome verb
}

// term is a granted fence.
type term struct {
	call, ret event
	alive     bool  // the process received the grant before it died
	died      int64 // when the process did
	ended     int64 // when the process learned that it ended
	next      int64 // when the first greater fence was granted
	releases  []*call
}

// release returns the call that gave the term up, or tried to, or nil.
func (t *term) release() *call {
	for _, r := range t.releases {
		if r.outcome != didFailed {
			return r
		}
	}
	return nil
}

// never is after all that was recorded.
func (p *timeline) never() int64 { return int64(len(p.events)) + 1 }

// returned is when the call did, or never.
func (p *timeline) returned(c *call) int64 {
	if c.ret.Seq == 0 {
		return p.never()
	}
	return c.ret.Seq
}

// at is when the event with the number was recorded; what is never is when the
// history ends.
func (p *timeline) at(seq int64) time.Time { return p.events[min(seq, int64(len(p.events)))-1].At }

// newTimeline sorts events.
func newTimeline(events []event) *timeline {
	p := &timeline{events: events}
	keys := map[string]*keyTimeline{}
	of := func(key string) *keyTimeline {
		k := keys[key]
		if k == nil {
			k = &keyTimeline{key: key, granted: map[int64]*term{}, ended: map[int64]int64{}}
			keys[key], p.keys = k, append(p.keys, k)
		}
		return k
	}
	open := map[int64]*call{}
	dead := map[int64]bool{}      // open calls of processes that died
	terms := map[string][]*term{} // of living processes
	calls := map[string][]*call{} // of living processes, some of them returned
	for _, e := range events {
		switch {
		case e.Kind.isCall():
			c := &call{event: e, outcome: didUnknown}
			open[e.Seq] = c
			of(e.Key).add(c)
			if e.Kind != didTake {
				calls[e.Process] = append(calls[e.Process], c)
			}
		case e.Kind.isReturn():
			c := open[e.Call]
			delete(open, e.Call)
			if e.Kind == didGranted {
				t := &term{call: c.event, ret: e, alive: !dead[e.Call], died: p.never()}
				of(e.Key).terms = append(of(e.Key).terms, t)
				if t.alive {
					terms[e.Process] = append(terms[e.Process], t)
				}
			}
			if !dead[e.Call] {
				c.ret, c.outcome = e, e.Kind
			}
		case e.Kind == didChecked:
			of(e.Key).checks = append(of(e.Key).checks, e)
		case e.Kind == didEnded:
			if k := of(e.Key); k.ended[e.Fence] == 0 {
				k.ended[e.Fence] = e.Seq
			}
		case e.Kind == didDied:
			for _, t := range terms[e.Process] {
				t.died = e.Seq
			}
			for _, c := range calls[e.Process] {
				if c.ret.Seq == 0 {
					dead[c.Seq] = true
				}
			}
			delete(terms, e.Process)
			delete(calls, e.Process)
		}
	}
	for seq, c := range open {
		if !dead[seq] {
			p.open = append(p.open, c.event)
		}
	}
	slices.SortFunc(p.open, func(a, b event) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(p.keys, func(a, b *keyTimeline) int { return cmp.Compare(a.key, b.key) })
	for _, k := range p.keys {
		k.join(p)
	}
	return p
}

func (k *keyTimeline) add(c *call) {
	switch c.Kind {
	case didEffect:
		k.effects = append(k.effects, c)
	case didRelease:
		k.releases = append(k.releases, c)
	case didTake:
		k.takes = append(k.takes, c)
	}
}

// join adds to each term its end, its releases and its successor.
func (k *keyTimeline) join(p *timeline) {
	slices.SortStableFunc(k.terms, func(a, b *term) int { return cmp.Compare(a.ret.Fence, b.ret.Fence) })
	next, same := p.never(), p.never() // same: of the terms with one fence
	for i, t := range slices.Backward(k.terms) {
		if i+1 < len(k.terms) && t.ret.Fence < k.terms[i+1].ret.Fence {
			next, same = min(next, same), p.never()
		}
		t.next, same = next, min(same, t.ret.Seq)
	}
	for _, t := range k.terms {
		t.ended = cmp.Or(k.ended[t.ret.Fence], p.never())
		if k.granted[t.ret.Fence] == nil {
			k.granted[t.ret.Fence] = t
		}
	}
	for _, r := range k.releases {
		if t := k.granted[r.Fence]; t != nil {
			t.releases = append(t.releases, r)
		}
	}
	k.takes = slices.DeleteFunc(k.takes, func(c *call) bool {
		return c.outcome != didDone && c.outcome != didUnknown
	})
}

// tookFrom returns the takes that may have ended the term: not those before it,
// nor those after a greater fence was granted.
func (k *keyTimeline) tookFrom(p *timeline, t *term) []*call {
	var took []*call
	for _, c := range k.takes {
		if t.call.Seq < p.returned(c) && c.Seq < t.next {
			took = append(took, c)
		}
	}
	return took
}

// excused reports whether a process may believe in its term from one record to
// another because the key was taken from it before.
func (p *timeline) excused(took []*call, grace time.Duration, from, to int64) bool {
	return slices.ContainsFunc(took, func(c *call) bool {
		// One that is unknown may yet come.
		return c.Seq < from && (c.outcome == didUnknown || !c.ret.At.Add(grace).Before(p.at(to)))
	})
}
