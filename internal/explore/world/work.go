package world

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/record"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Outcome is how the holder of a call ends work whose record is beside the claim; see package work. Records are on
// no lease here: no condition of a request names that lease.
type Outcome int

// The outcomes.
const (
	Unrecorded Outcome = iota // the call is for a claim alone
	Completes
	Fails
	GivesBack
)

// noon is when everything happens: failed work may be begun again at once.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

const recordKey = prefix + "work/" + userKey

// admission is what a call may do, as far as its record is known.
type admission int8

const (
	begins admission = iota // make an attempt, or claim a key that its attempt waited for
	waits                   // nothing yet: an attempt of its client is being undone, or an orphan marked as dead
	ends                    // nothing: the work is over, or may not be begun
)

// admit is asked before each request for a key that may be free; see work.plan.Prepare.
func (w *World) admit(i int) (admission, error) {
	c := w.change(i)
	if w.call(i).Work == Unrecorded {
		return begins, nil
	}
	k := record.Known{Key: userKey}
	if c.known != nil {
		k = *c.known
	}
	c.known, c.undone = &k, ""
	if k.Rev < 0 { // it has waited, and reads the record anew
		return begins, nil
	}
	switch k.Admits(noon, nil) {
	case record.Barred:
		return ends, k.Err
	case record.Ended:
		return ends, nil
	case record.Orphans:
		if c.undoes(k.Prev.Claim) { // which puts the record before back
			c.undone, k.Rev = k.Prev.Claim, -1
			return waits, nil
		}
		if why := k.Buries(-1, nil); why != "" {
			return waits, w.bury(i, &k, why)
		}
	case record.Begins:
	}
	return begins, nil
}

// goOn has a call go on that has waited for its record.
func (w *World) goOn(i int) error {
	c := w.change(i)
	if c.att == nil {
		return w.begin(i)
	}
	a := *c.att
	c.att = &a
	return w.carryOut(i, *c.act)
}

// outcome is the record with which the work of a caller in line is over, if it does not know that yet. See
// work.outcomes.
func (w World) outcome(c *client) *mvccpb.KeyValue {
	at := w.etcd.Get(recordKey)
	if c.known == nil || at.Modified == 0 || at.Modified == c.known.Rev {
		return nil
	}
	kv := at.KV()
	if r, err := record.Decode(userKey, kv); err != nil || !r.IsOver(noon, nil) {
		return nil
	}
	return kv
}

// learnRecord tells a call what the record is, nil if it does not exist.
func (c *client) learnRecord(kv *mvccpb.KeyValue) {
	known := *c.known
	known.Changed(kv)
	c.known = &known
}

// bury marks an orphan as dead; see work.plan.bury.
func (w *World) bury(i int, k *record.Known, why string) error {
	own, at := []byte(layout.Own(userKey)), []byte(recordKey)
	c := w.change(i)
	c.burial = txn.Request{Key: userKey, In: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.CreatedAt(own, 0), txn.ModifiedAt(at, k.Rev)},
		Success: []*pb.RequestOp{txn.Put(at, k.Prev.Buried(why, noon).Value().Encode(), int64(0))},
		Failure: []*pb.RequestOp{txn.Get(own), txn.Get(at)},
	}}
	c.buries = true
	return w.send(i, ofWork, "Bury", c.burial)
}

// buried goes on with the answer; see work.plan.bury.
func (w *World) buried(i int, resp *pb.TxnResponse) error {
	c := w.change(i)
	c.buries, c.burial = false, txn.Request{}
	if resp.Succeeded {
		return w.ended(i)
	}
	k := *c.known
	if len(resp.Responses[0].GetResponseRange().Kvs) > 0 { // held again: an attempt must read the record first
		k.Rev = -1
	} else if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		k.Changed(kvs[0])
	} else {
		k.Changed(nil)
	}
	c.known = &k
	return w.goOn(i)
}

// ended has a call, which may have a place in line, learn that its work is over.
func (w *World) ended(i int) error {
	c := w.change(i)
	if c.over = true; c.att != nil {
		return w.step(i, protocol.Event{Kind: protocol.Failed})
	}
	w.answered(i)
	return nil
}

// undoes reports whether an attempt is being undone.
func (c *client) undoes(claim string) bool {
	for i := range c.chores {
		if c.chores[i].claim == claim && c.chores[i].besides != nil {
			return true
		}
	}
	return false
}

// waitsForRecord reports whether the call can make no attempt yet.
func (c *client) waitsForRecord() bool { return c.buries || c.undone != "" && c.undoes(c.undone) }

// attemptAt returns the record of an attempt; see work.plan.record.
func attemptAt(c *client, call Call, k *record.Known, claim string) record.Record {
	r := k.Next()
	r.Claim, r.Begun, r.Owner, r.Instance, r.AtMostOnce = claim, noon, c.name, c.instance(), call.AtMostOnce
	return r
}

// putBeside has an attempt put its record; see acquire.Attempt.Describe and work.plan.Put.
func putBeside(c *client, call Call, a *protocol.Acquisition) {
	if call.Work == Unrecorded {
		return
	}
	r := attemptAt(c, call, c.known, a.ID)
	v := r.Value()
	v.Epoch = a.Epoch.Value
	a.Beside = &protocol.Beside{Key: recordKey, Rev: c.known.Rev, Value: v.Encode()}
	a.Value = protocol.Holder{Claim: a.ID, Owner: c.name, Instance: c.instance(), Epoch: a.Epoch.Value, Attempt: r.Attempt}.Encode()
}

// besides undo the record of an attempt; see work.plan.Undo.
func (c *client) besides(a *protocol.Acquisition) []*pb.RequestOp {
	if a.Beside == nil {
		return nil
	}
	before := ""
	if c.known.KV != nil {
		before = c.known.Restored()
	}
	return []*pb.RequestOp{record.Undo(recordKey, a.Beside.Value, before, 0)}
}

// endOps record how the holder ends its work, with an operation of the holder; see work.Work.tryEnd.
func endOps(c *client, call Call, t *term, how Outcome) *protocol.EndOps {
	r, none := attemptAt(c, call, t.known, t.held.ID), false
	r.Fence = t.held.Token().Fence
	switch how {
	case Completes:
		r = r.Done("", noon)
	case Fails:
		r = r.Failed(record.Failure{Error: "x", Limit: -1, After: func(int) time.Duration { return 0 }}, noon)
	case GivesBack:
		prev := record.Record{}
		if t.known.Prev != nil {
			prev = *t.known.Prev
		}
		r, none = r.GivenBack(prev, noon)
	case Unrecorded:
	}
	op := txn.Put([]byte(recordKey), r.Value().Encode(), int64(0))
	ends := &protocol.EndOps{}
	if none {
		op, ends.Deletes = txn.Delete([]byte(recordKey)), recordKey
	}
	ends.Ops = []*pb.RequestOp{op, txn.Put([]byte(done+t.held.ID), fmt.Sprint(how), int64(0))}
	return ends
}

// recordChanged follows the attempts that the record counts. counted has a byte for each: 1 if its caller has the
// claim, or had it.
func (w *World) recordChanged(before, now int64, was, is string) error {
	if before == now {
		return nil
	}
	from, to := record.Read([]byte(was)), record.Read([]byte(is))
	n := len(w.counted)
	switch {
	case to.Attempt == from.Attempt+1:
		w.counted += "\x00"
	case to.Attempt == from.Attempt-1 && n > 0:
		if w.counted[n-1] == 1 && to.State != record.Free && is != "" {
			return fmt.Errorf("attempt %d was put back, although its caller got it", n)
		}
		for i := range w.clients {
			if t := w.clients[i].term; t != nil && t.held.ID == from.Claim && t.end == nil {
				return fmt.Errorf("attempt %d was put back while its holder has it", n)
			}
		}
		w.counted = w.counted[:n-1]
	case to.Attempt != from.Attempt:
		return fmt.Errorf("the record counts %d attempts after %d", to.Attempt, from.Attempt)
	}
	return nil
}

// got notes that a caller got its attempt.
func (w *World) got(claim string) {
	v := record.Read([]byte(w.etcd.Get(recordKey).Value))
	if n := len(w.counted); v.State == record.Claimed && v.Claim == claim && n > 0 {
		w.counted = w.counted[:n-1] + "\x01"
	}
	w.begun++
}

// checkWork checks that work is completed at most once, that each attempt counts once, and that what may run
// at most once was begun once.
func (w World) checkWork() error {
	r := record.Read([]byte(w.etcd.Get(recordKey).Value))
	completed := 0
	for _, k := range w.etcd.Under(done) {
		if k.Value == fmt.Sprint(Completes) {
			completed++
		}
	}
	switch {
	case w.scope.Faults[Restore] > 0:
	case completed > 1:
		return fmt.Errorf("the work was completed %d times", completed)
	case (r.State == record.Done) != (completed == 1):
		return fmt.Errorf("the work was completed %d times, and its record says %q", completed, r.State)
	case r.AtMostOnce && w.begun > 1:
		return fmt.Errorf("work that may run at most once was begun %d times", w.begun)
	}
	uncounted := strings.Count(w.counted, "\x00")
	if r.State == record.Claimed && strings.HasSuffix(w.counted, "\x00") {
		uncounted-- // its caller may get it yet
	}
	if ends := w.claimsEnded(); uncounted > ends {
		return fmt.Errorf("%d attempts count that no caller got, and %d claims have ended by themselves", uncounted, ends)
	}
	return nil
}

// claimsEnded is how many faults have ended a claim, or an attempt.
func (w World) claimsEnded() (n int) {
	for _, f := range []Fault{Crash, Expiry, Revocation, Silence, EpochRaise, Deletion, Force, Closing} {
		n += int(w.scope.Faults[f] - w.left[f])
	}
	return n
}

// followed reports whether a request was carried out twice, and an attempt after it has put its record since. Then
// nothing shows its sender any more that it was carried out.
func (w World) followed(claim string) bool {
	r := record.Read([]byte(w.etcd.Get(recordKey).Value))
	return w.left[Twice] < w.scope.Faults[Twice] && r.Claim != "" && r.Claim != claim
}

// settledWork checks what a record is in the end.
func (w World) settledWork() error {
	r := record.Read([]byte(w.etcd.Get(recordKey).Value))
	// After some faults the key is held by nobody for a while, or the holder ends later without an outcome. Until then
	// callers that try have left.
	retried := true
	for i := range w.clients {
		calls := w.scope.Callers[i].Calls
		last := calls[len(calls)-1]
		for _, f := range []Fault{EpochRaise, Closing, Force, Silence, Restart, GivingUp} {
			retried = retried && (last.Waits || w.left[f] == w.scope.Faults[f])
		}
		retried = retried && w.clients[i].state == closed && last.Work == Completes
	}
	switch {
	case w.claimsEnded() == 0 && (r.State == record.Claimed || strings.Contains(w.counted, "\x00")):
		return fmt.Errorf("the record stays %q, of the attempts %q", r.State, w.counted)
	case retried && r.State != record.Done && !(r.AtMostOnce && r.State == record.Dead):
		return fmt.Errorf("all have ended, and the work is %q", r.State)
	}
	return nil
}
