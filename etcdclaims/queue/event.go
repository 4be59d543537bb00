package queue

import (
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/item"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// EventKind is the kind of an Event. EventSynced and EventResynced are about the watch itself.
// The others are changes of the queue:
//
//   - "enqueued", also if it was there and has another payload now, see Debounce, and "vested": its time
//     has come.
//   - "claimed": a worker has the item.
//   - "completed".
//   - "failed", "snoozed" and "released": the item waits again.
//   - "recovered": its worker was lost, and the item waits again.
//   - "died": the item went to the dead letters. "redriven": it waits again. "purged": it was
//     deleted from them.
//   - "reordered": the priority of a waiting item was changed.
//   - "cancelled".
//   - "paused", also if it was until another time, and "resumed": the queue.
type EventKind string

const (
	// EventSynced means that all events after its revision follow.
	EventSynced EventKind = "synced"
	// EventResynced means that events were missed: by compaction, or because the consumer
	// was too slow. All events after its revision follow.
	EventResynced EventKind = "resynced"
)

const (
	eventEnqueued  EventKind = "enqueued"
	eventVested    EventKind = "vested"
	eventClaimed   EventKind = "claimed"
	eventCompleted EventKind = "completed"
	eventFailed    EventKind = "failed"
	eventSnoozed   EventKind = "snoozed"
	eventReleased  EventKind = "released"
	eventRecovered EventKind = "recovered"
	eventDied      EventKind = "died"
	eventRedriven  EventKind = "redriven"
	eventReordered EventKind = "reordered"
	eventCancelled EventKind = "cancelled"
	eventPurged    EventKind = "purged"
	eventPaused    EventKind = "paused"
	eventResumed   EventKind = "resumed"
)

// Event is one change of a queue, or a note about the watch itself.
type Event struct {
	Kind EventKind
	ID   string // of the item
	// Owner, Attempt and Fence are those of the worker that has the item, or had it
	// until this event. The fence is that of the lease.
	Owner   string
	Attempt int
	Fence   int64
	// Until is when an item that waits becomes visible, or became so, or when a pause ends by
	// itself; see For.
	Until time.Time
	// Why is the error of a failed attempt, why the item died, or why the queue was
	// paused.
	Why      string
	Revision int64 // etcd's revision of the change
}

// change is what happened to an item at one revision of etcd.
type change struct {
	id              string
	taken, untaken  *mvccpb.KeyValue // put; deleted, as it was
	put, gone       *item.State      // in the index
	buried, exhumed *item.State      // among the dead letters
	verb            string           // that of its place, if a place was put
}

// eventsOf returns the events that changes of keys at one revision mean, in the order in
// which they touch items.
func (q *store) eventsOf(changed []*clientv3.Event) (out []Event) {
	byID := map[string]*change{}
	var order []*change
	of := func(id string) *change {
		c := byID[id]
		if c == nil {
			c = &change{id: id}
			byID[id] = c
			order = append(order, c)
		}
		return c
	}
	for _, ev := range changed {
		key := string(ev.Kv.Key)
		switch {
		case key == q.keys.Paused():
			out = append(out, pausingEvent(ev))
		case strings.HasPrefix(key, q.keys.Taken()):
			_, id, _ := strings.Cut(key[len(q.keys.Taken()):], "/")
			switch c := of(id); {
			case ev.Type == mvccpb.Event_PUT:
				c.taken = ev.Kv
				if !ev.IsCreate() {
					c.untaken = ev.Kv // by the process that has it: no claim
				}
			case ev.PrevKv != nil:
				c.untaken = ev.PrevKv
			default:
				c.untaken = &mvccpb.KeyValue{} // etcd has compacted it
			}
		case strings.HasPrefix(key, q.keys.Place("")):
			if p, err := item.Decode[item.Place](ev.Kv.Key, ev.Kv.Value); ev.Type == mvccpb.Event_PUT && err == nil {
				of(key[len(q.keys.Place("")):]).verb = p.Verb
			}
		case strings.HasPrefix(key, q.keys.Cancelled()):
			if _, id, _ := strings.Cut(key[len(q.keys.Cancelled()):], "/"); ev.Type == mvccpb.Event_PUT {
				of(id).verb = item.VerbCancel
			}
		default:
			q.noteState(of, key, ev)
		}
	}
	for _, c := range order {
		if e := c.event(); e.Kind != "" {
			e.ID = c.id
			out = append(out, e)
		}
	}
	for i := range out {
		out[i].Revision = changed[0].Kv.ModRevision
	}
	return out
}

// noteState notes a change in the index or among the dead letters.
func (q *store) noteState(of func(id string) *change, key string, ev *clientv3.Event) {
	waits := strings.HasPrefix(key, q.keys.Ready()) || strings.HasPrefix(key, q.keys.Later()) || strings.HasPrefix(key, q.keys.Behind())
	if !waits && !strings.HasPrefix(key, q.keys.Dead()) {
		return
	}
	kv := ev.Kv
	if ev.Type != mvccpb.Event_PUT {
		kv = ev.PrevKv
	}
	if kv == nil {
		return
	}
	st, err := item.DecodeState(kv)
	if st.ID = max(st.ID, q.keys.BareID(key)); err != nil && st.ID == "" {
		return
	}
	switch c := of(st.ID); {
	case waits && ev.Type == mvccpb.Event_PUT:
		c.put = &st
	case waits:
		c.gone = &st
	case ev.Type == mvccpb.Event_PUT:
		c.buried = &st
	default:
		c.exhumed = &st
	}
}

func pausingEvent(ev *clientv3.Event) Event {
	if ev.Type != mvccpb.Event_PUT {
		return Event{Kind: eventResumed}
	}
	p, _ := item.Decode[item.Pausing](ev.Kv.Key, ev.Kv.Value) // of a newer version: paused all the same
	return Event{Kind: eventPaused, Owner: p.By, Why: p.Why, Until: p.Until}
}

// waitingKinds are the events of items that are put to wait, by the verb of their
// place.
var waitingKinds = map[string]EventKind{
	"fail": eventFailed, "snooze": eventSnoozed, "release": eventReleased, "lost": eventRecovered,
	"priority": eventReordered, "redrive": eventRedriven, "vest": eventVested, "debounce": eventEnqueued,
}

// event returns what the change means. Its Kind is empty if it means nothing, as if a
// lease was moved to another session.
func (c *change) event() (e Event) {
	switch {
	case c.buried != nil:
		e.Kind, e.Why = eventDied, c.buried.Why
	case c.put != nil && c.gone != nil && c.put.Lane != c.gone.Lane: // its turn has come
	case c.put != nil:
		e.Kind, e.Until = waitingKinds[c.verb], c.put.Vesting
		switch n := len(c.put.History); {
		case e.Kind == eventFailed && n > 0, e.Kind == eventRecovered && n > 0:
			e.Why = c.put.History[n-1].Error
		case e.Kind != "":
		case c.gone != nil:
			e.Kind = eventVested
		default:
			e.Kind = eventEnqueued
		}
	case c.taken != nil && c.untaken == nil:
		e.Kind = eventClaimed
	case c.taken != nil:
	case c.untaken != nil && c.verb == item.VerbCancel:
		e.Kind = eventCancelled
	case c.untaken != nil:
		e.Kind = eventCompleted
	case c.gone != nil:
		e.Kind = eventCancelled
	case c.exhumed != nil && c.verb == "":
		e.Kind = eventPurged
	}
	by := c.untaken
	if by == nil {
		by = c.taken
	}
	if by != nil {
		if st, err := item.DecodeState(by); err == nil {
			e.Owner, e.Attempt = st.Owner, st.Attempts
			e.Fence = item.FenceOf(st, by)
		}
	}
	return e
}
