package webui

import "time"

// mostObserved is how many terms a page remembers the times of.
const mostObserved = 2000

// observed are the times of the newest terms that were seen to begin or to end. etcd does not store
// them. Its owner guards it.
type observed struct {
	since time.Time // from then on no change was missed
	times map[termID]lifetime
	order []termID // of times, oldest first
}

type termID struct {
	key   string
	fence int64
}

// lifetime is when a term was seen to begin and to end. What was not seen is zero.
type lifetime struct{ Began, Ended time.Time }

func (o *observed) begin(key string, fence int64, now time.Time) {
	o.put(termID{key, fence}, lifetime{Began: now})
}

func (o *observed) end(key string, fence int64, now time.Time) {
	id := termID{key, fence}
	o.put(id, lifetime{o.times[id].Began, now})
}

// put notes the times of a term, and forgets those of the term that was first seen.
func (o *observed) put(id termID, l lifetime) {
	if o.times == nil {
		o.times = make(map[termID]lifetime)
	}
	if _, known := o.times[id]; !known {
		o.order = append(o.order, id)
	}
	o.times[id] = l
	if len(o.order) > mostObserved {
		delete(o.times, o.order[0])
		o.order = o.order[1:]
	}
}
