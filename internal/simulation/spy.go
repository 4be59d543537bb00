package simulation

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// spy observes the requests of a process, and can keep handoff notices and other events
// from it. A fault that was injected before the spy takes precedence.
type spy struct {
	mu      sync.Mutex
	at      *claimtest.Injection
	deaf    int               // how many handoff notices to drop
	unheard deafness          // other events to drop
	batched map[string]string // ticket of the last batch, by claim id
	void    map[string]bool   // tickets
}

// inject lets a fault happen to the process's requests.
func (p *process) inject(f claimtest.Fault) *claimtest.Injection {
	if p.spy == nil {
		return p.host.Inject(f)
	}
	saw := f.Saw
	f.Saw = func(req any) {
		p.saw(req)
		if saw != nil {
			saw(req)
		}
	}
	f.Edit = p.mute
	i := p.host.Inject(f)
	p.watchAgain()
	return i
}

// watchAgain puts the spy behind all faults.
func (p *process) watchAgain() {
	if p.spy == nil {
		return
	}
	p.spy.mu.Lock()
	defer p.spy.mu.Unlock()
	if p.spy.at != nil {
		p.spy.at.Remove()
	}
	p.spy.at = p.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, Saw: p.saw, Edit: p.mute, DelayReply: p.rtt})
}

// mute drops handoff notices and other events from a reply.
func (p *process) mute(reply any) {
	resp, ok := reply.(*pb.WatchResponse)
	if !ok {
		return
	}
	p.spy.mu.Lock()
	defer p.spy.mu.Unlock()
	if n := p.spy.unheard.mute(resp); n > 0 {
		p.w.counts1("events of watches lost", n)
	}
	resp.Events = slices.DeleteFunc(resp.Events, func(ev *mvccpb.Event) bool {
		lost := p.spy.deaf > 0 && strings.Contains(string(ev.Kv.Key), "/won/")
		if lost {
			p.spy.deaf--
			p.w.count("handoff notices lost")
		}
		return lost
	})
}

// saw looks at a request, and counts how batches are made, and made again.
func (p *process) saw(req any) {
	in, ok := req.(*pb.TxnRequest)
	if !ok {
		return
	}
	p.spy.mu.Lock()
	defer p.spy.mu.Unlock()
	for _, in := range transactions(in) {
		for _, op := range in.Failure {
			if key := string(op.GetRequestPut().GetKey()); strings.Contains(key, "/void/") {
				p.spy.void[key] = true
			}
		}
	}
	calls, levels := callsOf(in)
	ticket := ""
	for _, c := range in.Compare {
		if strings.Contains(string(c.Key), "/void/") {
			ticket = string(c.Key)
		}
	}
	if len(calls) > 1 {
		p.w.count("batches of several calls")
		if levels > 1 {
			p.w.count("batches of two levels")
		}
		if slices.ContainsFunc(calls, ofCaller) {
			p.w.count("batches with operations of callers")
		}
	}
	again := ""
	for _, m := range calls {
		claim := claimIn(m)
		before, sent := p.spy.batched[claim]
		switch {
		case claim == "" || !sent:
		case before == ticket:
			again = "batches split by lease"
		case p.spy.void[before]:
			again = "batches sent again, voided by one of the calls"
		default:
			again = "batches sent again, refused"
		}
		if claim != "" && len(calls) > 1 {
			p.spy.batched[claim] = ticket
		}
	}
	if again != "" {
		p.w.count(again)
	}
}

// ofCaller reports whether a request puts what a caller has asked for beside a claim.
func ofCaller(in *pb.TxnRequest) bool {
	return slices.ContainsFunc(in.Success, func(op *pb.RequestOp) bool {
		key := string(op.GetRequestPut().GetKey())
		return strings.HasPrefix(key, thenPrefix) || strings.HasPrefix(key, effectPrefix)
	})
}

// claimIn returns the id of the claim that a request puts under its own power.
func claimIn(in *pb.TxnRequest) string {
	for _, op := range in.Success {
		if put := op.GetRequestPut(); put != nil && strings.Contains(string(put.Key), "/own/") {
			var h holder
			_ = json.Unmarshal(put.Value, &h)
			return h.Claim
		}
	}
	return ""
}

// transactions returns the transaction of a request, if it is one, and all that stand in it.
func transactions(req any) (all []*pb.TxnRequest) {
	in, ok := req.(*pb.TxnRequest)
	if !ok {
		return nil
	}
	all = append(all, in)
	for _, op := range slices.Concat(in.Success, in.Failure) {
		if inner := op.GetRequestTxn(); inner != nil {
			all = append(all, transactions(inner)...)
		}
	}
	return all
}

// callsOf returns the requests that share a round trip, and in how many levels they are
// nested. A request by itself is one call in no level.
func callsOf(in *pb.TxnRequest) (calls []*pb.TxnRequest, levels int) {
	inner := nested(in)
	if len(inner) == 0 {
		return []*pb.TxnRequest{in}, 0
	}
	levels = 1
	for _, m := range inner {
		if group := nested(m); len(group) > 0 && len(m.Compare) == 0 && len(m.Failure) == 0 {
			calls, levels = append(calls, group...), 2
		} else {
			calls = append(calls, m)
		}
	}
	return calls, levels
}

// nested returns the transactions of which one consists, nil if there is more.
func nested(in *pb.TxnRequest) (inner []*pb.TxnRequest) {
	for _, op := range in.Success {
		m := op.GetRequestTxn()
		if m == nil {
			return nil
		}
		inner = append(inner, m)
	}
	return inner
}

// receiver returns who is handed a key by a request, and which key.
func (w *world) receiver(req any) (p *process, key string) {
	instance := ""
	for _, in := range transactions(req) {
		own := ""
		for _, op := range in.Success {
			name := string(op.GetRequestPut().GetKey())
			if k, ok := strings.CutPrefix(name, prefix+"own/"); ok {
				own = k
			}
			if rest, ok := strings.CutPrefix(name, prefix+"session/"); ok && strings.Contains(rest, "/won/") {
				instance, _, _ = strings.Cut(rest, "/")
				key = own
			}
		}
	}
	if i := slices.IndexFunc(w.slots, func(p *process) bool { return p.client.Instance() == instance }); i >= 0 {
		return w.slots[i], key
	}
	return nil, ""
}

// deafness is what a process does not hear of what comes on its watches, while
// the connection is as good as ever.
type deafness string

const (
	hearsAll  deafness = ""
	noPuts    deafness = "puts"
	noDeletes deafness = "deletes"
	noEvents  deafness = "events"
	noCancels deafness = "cancellations" // the end of a watch
	noCreates deafness = "creations"     // its beginning
)

var deafnesses = []deafness{noPuts, noDeletes, noEvents, noCancels, noCreates}

// mute removes from a watch response what the process must not hear, and returns how many events,
// cancellations or creations that were.
func (d deafness) mute(resp *pb.WatchResponse) int {
	before := len(resp.Events)
	switch {
	case d == noCancels && resp.Canceled:
		resp.Canceled, resp.CompactRevision, resp.CancelReason = false, 0, ""
		return 1
	case d == noCreates && resp.Created:
		resp.Created = false
		return 1
	}
	resp.Events = slices.DeleteFunc(resp.Events, func(ev *mvccpb.Event) bool {
		put := ev.Type == mvccpb.Event_PUT
		return strings.HasPrefix(string(ev.Kv.Key), prefix) && (d == noEvents || d == noPuts && put || d == noDeletes && !put)
	})
	return before - len(resp.Events)
}

// deafen makes a process deaf for a while. What it has missed by then no watch
// tells it any more.
func (w *world) deafen(p *process) {
	if p.spy == nil || p.slot == 0 { // whose observer must tell of every change
		return
	}
	d := deafnesses[w.rng.IntN(len(deafnesses))]
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
