package items

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// The steps whose requests have no verb.
const (
	stepClaim    = "claim"
	stepRecover  = "recovery"
	stepGiveBack = "giving back"
	stepSettle   = "settling"
	stepPromote  = "promotion"
	stepEnqueue  = "enqueue"
	stepMove     = item.VerbHeartbeat
)

// open makes a session: the claim, and the entry by which others find it. See acquire in queue/sessions.go.
func (s *State) open(i int) error {
	w := &s.workers[i]
	w.session++
	for s.etcd.Lives(leaseOf(i, w.session)) || s.etcd.Get(keys.Worker(sessionOf(i, w.session))).Modified > 0 {
		w.session++
	}
	id := sessionOf(i, w.session)
	var err error
	if s.etcd, err = s.etcd.Grant(leaseOf(i, w.session)); err != nil {
		return err
	}
	s.etcd, _, err = s.etcd.Txn(&pb.TxnRequest{Success: []*pb.RequestOp{
		txn.Put([]byte(keys.Own(id)), "{}", leaseOf(i, w.session)), txn.Put([]byte(keys.Worker(id)), `{"v":1}`, int64(0)),
	}})
	w.fence, w.gen = s.etcd.Revision(), s.etcd.Revision()
	return err
}

// entries reads the items under some keys.
func (s *State) entries(names ...string) (all []*item.Entry, err error) {
	for _, name := range names {
		for _, kv := range s.ask(txn.Get([]byte(name))).Responses[0].GetResponseRange().Kvs {
			e, err := keys.Entry(kv)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
	}
	return all, nil
}

// claimItems claims items. See takeItems in queue/round.go.
func (s *State) claimItems(i int, names ...string) error {
	all, err := s.entries(names...)
	w := &s.workers[i]
	session := sessionOf(i, w.session)
	claim := item.Claim{
		Keys: keys, Session: session, Items: all, Owner: session, Now: noon,
		Nonce: fmt.Sprintf("%s@%d", session, s.etcd.Revision()),
	}
	s.send(i, stepClaim, claim, w.generation(i).Require(claim.Build()), item.Held{})
	return err
}

// promote moves an item whose time has come.
func (s *State) promote(i int, name string) error {
	all, err := s.entries(name)
	step := item.Promote{Keys: keys, Items: all}
	s.send(i, stepPromote, step, step.Build(), item.Held{})
	return err
}

// recover takes over what a session has left, or removes its entry. See drain in queue/recover.go.
func (s *State) recover(i int, session string) error {
	step := item.Recover{Keys: keys, Session: session, Now: noon}
	step.Taken = s.ask(item.Behind(keys.TakenBy(session), keys.TakenBy(session), 10)).Responses[0].GetResponseRange().Kvs
	if len(step.Taken) == 0 {
		s.send(i, stepSettle, settle{step}, step.Settle(), item.Held{})
		return nil
	}
	in, unreadable := step.Build()
	s.send(i, stepRecover, step, in, item.Held{})
	if len(unreadable) > 0 {
		return unreadable[0]
	}
	return nil
}

// enter enqueues an item. See enqueue and send in queue/enqueue.go.
func (s *State) enter(i, n int) {
	w := &s.workers[i]
	w.since = s.etcd.Revision()
	step := enter{enqueue(s.scope, i, n), n}
	s.send(i, stepEnqueue, step, w.generation(i).Require(step.Build()), item.Held{})
}

// verb sends the verb that ends the first hold. See verb in queue/verbs.go.
func (s *State) verb(i int, kind Kind) {
	w := &s.workers[i]
	h := w.holds[0].Held
	later := noon.Add(time.Hour)
	v := verb{}
	switch kind {
	case Fail, Bury:
		v.name = item.VerbFail
		v.in = item.Fail{Held: h, Cause: "c", Permanent: kind == Bury, Wait: time.Hour, Now: noon}.Build()
	case Discard:
		v.name, v.in = item.VerbDiscard, item.Discard{Held: h, Reason: "r", Now: noon}.Build()
	case Release:
		v.name, v.in = item.VerbRelease, item.Release{Held: h, Now: noon}.Build()
	case Snooze:
		v.name, v.in = item.VerbSnooze, item.Snooze{Held: h, Until: later, Now: noon}.Build()
	default:
		c := item.Complete{Held: h, Remember: s.scope.Remember, Now: noon, Then: []*pb.RequestOp{effect(h)}}
		if s.scope.Remember || h.By != "" {
			c.Keep = keep
		}
		v.name, v.in = item.VerbComplete, c.Build()
	}
	s.send(i, v.name, v, v.in, h)
}

// effect is the operation that a worker completes an item with.
func effect(h item.Held) *pb.RequestOp {
	return txn.Put([]byte(fmt.Sprintf("effect/%s/%s%d", h.State.ID, h.By, h.Rev)), "", int64(0))
}

// moveHere moves an adopted item to the worker's own session. See rehome in queue/heartbeat.go.
func (s *State) moveHere(i int) {
	w := &s.workers[i]
	nonce := fmt.Sprintf("m%d", s.etcd.Revision())
	step := item.Move{Held: w.holds[0].Held, To: sessionOf(i, w.session), Owner: "m", Nonce: nonce}
	s.send(i, stepMove, step, w.generation(i).Require(step.Build()), step.Held)
}

// unknown goes on after a request whose reply the worker does not get.
func (s *State) unknown(i int) {
	w := &s.workers[i]
	switch step := w.step.(type) {
	case item.Claim:
		s.void(i, claimVoid{step}, step.Reads())
	case claimVoid:
		s.void(i, step, step.Reads())
	case giveVoid:
		s.giveVoid(i)
	case enter:
		s.enterVoid(i, step)
	case enterVoid:
		s.enterVoid(i, enter(step))
	case verb:
		w.unsure = step.name
		s.send(i, step.name, step, step.in, w.holds[0].Held)
	case item.Move:
		w.unsure = stepMove
		s.send(i, stepMove, step, w.generation(i).Require(step.Build()), step.Held)
	default: // it is tried again when the worker comes to it again
		w.sent, w.step = nil, nil
	}
}

// abandon ends the first hold, and has the item given back. See abandon in queue/delivery.go, and the end of
// rehome in queue/heartbeat.go.
func (s *State) abandon(i int) {
	w := &s.workers[i]
	_, moves := w.step.(item.Move)
	w.sent, w.doubt = nil, w.doubt || moves || !w.holds[0].Elsewhere
	w.drop()
}

// giveVoid begins to give back what the session has without a hold. See giveBack in queue/giveback.go.
func (s *State) giveVoid(i int) {
	prefix := keys.TakenBy(sessionOf(i, s.workers[i].session))
	s.void(i, giveVoid{}, []*pb.RequestOp{item.Behind(prefix, prefix, 10)})
}

func (s *State) enterVoid(i int, step enter) {
	s.void(i, enterVoid(step), []*pb.RequestOp{step.Mark(keep)})
}

// receive judges the reply that a worker has got.
func (s *State) receive(i int) error {
	w := &s.workers[i]
	resp, step := w.reply, w.step
	w.reply, w.answer = nil, nil
	if !resp.Succeeded {
		if state := (protocol.Owner{Held: w.claim(i)}).Judge(resp); state == protocol.Kept {
			return fmt.Errorf("%s is refused by the guard of a session that it has", w.name(i))
		}
		return s.lose(i)
	}
	w.step = nil
	resp = w.inner(resp)
	switch step := step.(type) {
	case item.Claim:
		if !resp.Succeeded {
			return s.learn(i, step, resp)
		}
		got, second := step.Judge(resp)
		w.doubt = w.doubt || second > 0
		return s.got(i, got)
	case claimVoid:
		w.gen = resp.Header.Revision
		got, unreadable := step.JudgeReads(resp)
		if len(unreadable) > 0 {
			return unreadable[0]
		}
		return s.got(i, got)
	case giveVoid:
		return s.giveBack(i, resp)
	case item.GiveBack:
		w.doubt = false
	case enter:
		return s.entered(i, step, resp)
	case enterVoid:
		return s.sought(i, step, resp.Header.Revision)
	case verb:
		return s.told(i, step, resp)
	case item.Move:
		return s.movedHere(i, step, resp)
	}
	return nil
}

// learn takes in the generation that a refused request has found. See ofGeneration in queue/session.go.
func (s *State) learn(i int, step any, resp *pb.TxnResponse) error {
	w := &s.workers[i]
	now := w.generation(i).Judge(resp)
	if now == 0 {
		return fmt.Errorf("the entry of the session of %s is gone, and the session is not", w.name(i))
	}
	w.gen = max(w.gen, now)
	return nil
}

// giveBack gives back the items of the session of which the worker has no hold.
func (s *State) giveBack(i int, resp *pb.TxnResponse) error {
	w := &s.workers[i]
	w.gen = resp.Header.Revision
	nobodys := slices.DeleteFunc(slices.Clone(resp.Responses[0].GetResponseRange().Kvs), func(kv *mvccpb.KeyValue) bool {
		return slices.ContainsFunc(w.holds, func(h hold) bool { return h.Key() == string(kv.Key) && h.Rev == kv.ModRevision })
	})
	if s.scope.Hasty {
		nobodys = resp.Responses[0].GetResponseRange().Kvs
	}
	if len(nobodys) == 0 {
		w.doubt = false
		return nil
	}
	step := item.GiveBack{Keys: keys, Taken: nobodys, Now: noon}
	in, unreadable := step.Build()
	s.send(i, stepGiveBack, step, in, item.Held{})
	if len(unreadable) > 0 {
		return unreadable[0]
	}
	return nil
}

// entered judges the reply to an enqueue.
func (s *State) entered(i int, step enter, resp *pb.TxnResponse) error {
	w := &s.workers[i]
	if !resp.Succeeded {
		if gen := w.generation(i); gen.Judge(resp) != gen.Rev {
			return s.learn(i, step, resp)
		}
	}
	w.todo, w.since = w.todo&^(1<<step.i), 0
	return s.toldEntered(i, step.i, step.Judge(resp) == item.Added)
}

// sought judges whether an enqueue of unknown outcome was carried out. See notPut in queue/enqueue.go.
func (s *State) sought(i int, step enterVoid, end int64) error {
	w := &s.workers[i]
	w.gen = end
	from, to := step.History()
	history := &pb.WatchCreateRequest{Key: []byte(from), RangeEnd: []byte(to), StartRevision: w.since + 1}
	events, err := s.etcd.Events(history)
	if err != nil {
		return err
	}
	put, known := step.Marked(events, end)
	switch {
	case !known:
		return fmt.Errorf("%s does not find its mark", w.name(i))
	case put:
		w.todo, w.since = w.todo&^(1<<step.i), 0
		return s.toldEntered(i, step.i, true)
	case s.ledger[step.i].seqs[i] > 0:
		return fmt.Errorf("%s takes its enqueue of %s for not carried out, but it was", w.name(i), step.ID)
	}
	return nil // again
}

func (s *State) toldEntered(i, n int, added bool) error {
	if was := s.ledger[n].seqs[i] > 0; was != added {
		return fmt.Errorf("%s takes %s for enqueued by it: %v, but that is %v", s.workers[i].name(i), ids[n], added, was)
	}
	return nil
}

// told judges the reply to a verb.
func (s *State) told(i int, step verb, resp *pb.TxnResponse) error {
	w := &s.workers[i]
	h := w.holds[0]
	if resp.Succeeded {
		w.drop()
		return nil
	}
	standing := h.Refused(resp)
	if s.scope.Hasty {
		standing = item.Stands
	}
	if err := s.concluded(i, standing); err != nil {
		return err
	}
	if standing == item.Anew && !h.Elsewhere {
		w.doubt = true
	}
	w.drop()
	return nil
}

// movedHere judges the reply to a move.
func (s *State) movedHere(i int, step item.Move, resp *pb.TxnResponse) error {
	w := &s.workers[i]
	rev := int64(0)
	switch {
	case resp.Succeeded:
		rev = resp.Header.Revision
	case w.unsure != "":
		rev = step.Earlier(resp)
	}
	h := w.holds[0]
	mine := h.end != nil && h.end.step == stepMove && h.end.by == h.By
	switch {
	case rev == 0 && w.generation(i).Judge(resp) != w.gen:
		return s.again(i, step, resp)
	case rev == 0 && mine && s.etcd.Get(step.Moved(0).Key()).Modified == h.end.Rev:
		return fmt.Errorf("%s does not know that it has moved %s", w.name(i), step.State.ID)
	case rev == 0:
		w.doubt = w.doubt || w.unsure != ""
		w.drop()
		return nil
	case !mine || h.end.Rev != rev:
		return fmt.Errorf("%s takes %s for moved at revision %d, and it was not", w.name(i), step.State.ID, rev)
	}
	to := hold{Held: step.Moved(rev)}
	to.state = item.Encode(to.State)
	w.unsure = ""
	w.holds = append([]hold{to}, w.holds[1:]...)
	if key := s.etcd.Get(to.Key()); key.Modified != rev {
		w.drop() // it has ended since: the worker learns that with its next request
		w.doubt = true
	}
	return nil
}

// again sends a move under the generation that its refusal has shown.
func (s *State) again(i int, step item.Move, resp *pb.TxnResponse) error {
	if err := s.learn(i, step, resp); err != nil {
		return err
	}
	s.send(i, stepMove, step, s.workers[i].generation(i).Require(step.Build()), step.Held)
	return nil
}

// ended returns the sessions that have ended and left something.
func (s *State) endedSessions() (all []string) {
	for _, key := range s.etcd.Under(keys.Workers()) {
		if id := strings.TrimPrefix(key.Name, keys.Workers()); s.etcd.Get(keys.Own(id)).Modified == 0 {
			all = append(all, id)
		}
	}
	return all
}

func names(under []*etcdmodel.Key) (all []string) {
	for _, key := range under {
		all = append(all, key.Name)
	}
	return all
}
