package simulation

import (
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// deafness is what a process does not hear of what comes on its watches, while
// the connection is as good as ever.
type deafness int

const (
	hearsAll deafness = iota
	noPuts
	noDeletes
	noEvents
	noCancels // the end of a watch
	noCreates // its beginning
	deafnesses
)

func (d deafness) String() string {
	return [...]string{"nothing", "puts", "deletes", "events", "cancellations", "creations"}[d]
}

// mute takes out of what comes on a watch what is not to be heard, and returns how
// much that was.
func (d deafness) mute(resp *pb.WatchResponse) int {
	ours := func(ev *mvccpb.Event) bool { return strings.HasPrefix(string(ev.Kv.Key), prefix) }
	before := len(resp.Events)
	switch d {
	case noPuts:
		resp.Events = slices.DeleteFunc(resp.Events, func(ev *mvccpb.Event) bool { return ours(ev) && ev.Type == mvccpb.Event_PUT })
	case noDeletes:
		resp.Events = slices.DeleteFunc(resp.Events, func(ev *mvccpb.Event) bool { return ours(ev) && ev.Type == mvccpb.Event_DELETE })
	case noEvents:
		resp.Events = slices.DeleteFunc(resp.Events, ours)
	case noCancels:
		if resp.Canceled {
			resp.Canceled, resp.CompactRevision, resp.CancelReason = false, 0, ""
			return 1
		}
	case noCreates:
		if resp.Created {
			resp.Created = false
			return 1
		}
	}
	return before - len(resp.Events)
}

// deafen makes a process deaf for a while. What it has missed by then no watch
// tells it any more.
func (w *world) deafen(p *process) {
	if p.spy == nil || p.slot == 0 { // whose observer must tell of every change
		return
	}
	d := 1 + deafness(w.rng.IntN(int(deafnesses)-1))
	w.history.Logf("%s hears no %s", p.name, d)
	p.spy.hear(d)
	end := w.ledger.begin(span{who: p, deaf: true})
	p.later(between(w.rng, time.Second, 2*p.ttl), func() {
		p.spy.hear(hearsAll)
		if d == noCreates || d == noCancels {
			p.host.Break() // else it is deaf for ever
		}
		time.Sleep(p.longest()) // what it has missed it asks for when it renews
		end()
	})
	if w.rng.IntN(2) == 0 {
		w.contend(p)
	}
}

func (s *spy) hear(d deafness) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unheard = d
}
