package simulation

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Exercised are counts of what must occur in many runs: if one stays zero the
// simulation has ceased to try it.
var Exercised = []string{
	countBursts, countBatches, countCallers, countTwoLevels, countSplit, countVoided, countRefused, countAimed, countHandedOver, countUnnoticed, countGhosts,
	countBeliefs, countRested, countHot, countHotEnds, countUnheard, countDeafTurns, countClosed, countSlots,
	countResized, countShared, countSharedTerms, countSuspicions, countPreferred, countThens,
	countReentrant, countFar,
	countItems, countRecovered, countGivenBack, countOrdered, countItemsUntold, countBacklog,
}

const (
	countBursts     = "bursts"
	countBatches    = "batches of several calls"
	countCallers    = "batches with operations of callers"
	countTwoLevels  = "batches of two levels"
	countSplit      = "batches split by lease"
	countVoided     = "batches sent again, voided by one of the calls"
	countRefused    = "batches sent again, refused"
	countHandedOver = "keys handed over"
	countAimed      = "batches that a fault hit"
	countUnnoticed  = "handoff notices lost"
	countGhosts     = "judged: claims that nobody was told of"
	countBeliefs    = "judged: owners beside the one before"
	countRested     = "judged: keys that were to be held for a while"
	countHot        = "hot keys"
	countHotEnds    = "judged: releases of hot keys"
	countSlots      = "slots granted"
	countSlotTerms  = "judged: terms of slots"
	countResized    = "slots resized"
	countSuspicions = "suspicions"
	countFar        = "processes far from etcd"
	countThens      = "judged: acquisitions with Then"
	countPreferred  = "judged: keys handed past the line by preference"
	countReentrant  = "keys had again by their holders"

	countShared      = "shared claims granted"
	countSharedTerms = "judged: shared terms"
	countUnheard     = "events of watches lost"
	countDeafTurns   = "judged: turns of the deaf"
	countClosed      = "fault: process closed under its workers"

	countItems       = "judged: items completed"
	countRecovered   = "judged: items recovered"
	countGivenBack   = "judged: items given back"
	countOrdered     = "judged: items in order"
	countItemsUntold = "judged: items taken and nobody told"
	countBacklog     = "judged: items taken from a backlog"
)

// spy observes the requests of a process, and can keep handoff notices and other events
// from it. A fault that was injected before the spy takes precedence.
type spy struct {
	mu   sync.Mutex
	at   *claimtest.Injection
	deaf int // how many handoff notices to drop

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
	if f.Edit == nil {
		f.Edit = p.deafen
	}
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
	p.spy.at = p.host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, Saw: p.saw, Edit: p.deafen, DelayReply: p.rtt})
}

// deafen drops handoff notices and other events from a reply.
func (p *process) deafen(reply any) {
	resp, ok := reply.(*pb.WatchResponse)
	if !ok {
		return
	}
	p.spy.mu.Lock()
	defer p.spy.mu.Unlock()
	if n := p.spy.unheard.mute(resp); n > 0 {
		p.w.counts1(countUnheard, n)
	}
	for i := 0; i < len(resp.Events); i++ {
		if p.spy.deaf > 0 && strings.Contains(string(resp.Events[i].Kv.Key), "/won/") {
			p.spy.deaf--
			resp.Events = slices.Delete(resp.Events, i, i+1)
			i--
			p.w.count(countUnnoticed)
		}
	}
}

// saw looks at a request.
func (p *process) saw(req any) {
	in, ok := req.(*pb.TxnRequest)
	if !ok {
		return
	}
	p.spy.mu.Lock()
	defer p.spy.mu.Unlock()
	each(in, func(in *pb.TxnRequest) {
		for _, op := range in.Failure {
			if key := string(op.GetRequestPut().GetKey()); strings.Contains(key, "/void/") {
				p.spy.void[key] = true
			}
		}
	})
	calls, levels := callsOf(in)
	ticket := ""
	for _, c := range in.Compare {
		if strings.Contains(string(c.Key), "/void/") {
			ticket = string(c.Key)
		}
	}
	if len(calls) > 1 {
		p.w.count(countBatches)
		if levels > 1 {
			p.w.count(countTwoLevels)
		}
		if slices.ContainsFunc(calls, ofCaller) {
			p.w.count(countCallers)
		}
	}
	again := ""
	for _, m := range calls {
		claim := claimIn(m)
		if claim == "" {
			continue
		}
		if before, ok := p.spy.batched[claim]; ok {
			switch {
			case before == ticket:
				again = countSplit
			case p.spy.void[before]:
				again = countVoided
			default:
				again = countRefused
			}
		}
		if len(calls) > 1 {
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

// each calls f with the transaction and all that stand in it.
func each(in *pb.TxnRequest, f func(*pb.TxnRequest)) {
	f(in)
	for _, op := range slices.Concat(in.Success, in.Failure) {
		if inner := op.GetRequestTxn(); inner != nil {
			each(inner, f)
		}
	}
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

// receiver returns who is handed a key by a request, and which key.
func (w *world) receiver(req any) (p *process, key string) {
	in, ok := req.(*pb.TxnRequest)
	if !ok {
		return nil, ""
	}
	instance := ""
	each(in, func(in *pb.TxnRequest) {
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
	})
	for _, p := range w.slots {
		if p.client.Instance() == instance {
			return p, key
		}
	}
	return nil, ""
}

// leasesIn returns the leases that a request puts keys on.
func leasesIn(req any) (leases []int64) {
	in, ok := req.(*pb.TxnRequest)
	if !ok {
		return nil
	}
	each(in, func(in *pb.TxnRequest) {
		for _, op := range in.Success {
			if l := op.GetRequestPut().GetLease(); l != 0 && !slices.Contains(leases, l) {
				leases = append(leases, l)
			}
		}
	})
	return leases
}
