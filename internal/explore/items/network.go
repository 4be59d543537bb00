package items

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/item"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// carry has etcd carry out a request, and checks what that changes.
func (s *State) carry(r *request) (*pb.TxnResponse, error) {
	before := s.etcd
	after, resp, err := before.Txn(r.in)
	if err != nil {
		return nil, fmt.Errorf("etcd refuses the request of %s: %w", r.step, err)
	}
	s.etcd = after
	if err := s.account(r.step, r.by, r.held, before); err != nil {
		return nil, err
	}
	// A verb that ended nothing must have changed nothing.
	if r.held.Rev > 0 && after.Revision() > before.Revision() && before.Get(r.held.Key()).Modified != r.held.Rev {
		return nil, fmt.Errorf("%s of %s was carried out, although its hold was over", r.step, r.held.State.ID)
	}
	return resp, nil
}

// account compares two states of etcd, and notes what a request has done.
func (s *State) account(step string, by int, held item.Held, before etcdmodel.State) error {
	for i := range s.scope.Items {
		id, l := ids[i], &s.ledger[i]
		was, is := before.Get(keys.Content(id)), s.etcd.Get(keys.Content(id))
		switch lived, lives := alive(was), alive(is); {
		case !lived && lives:
			l.put++
			c, err := item.Decode[item.Content](nil, []byte(is.Value))
			if err != nil {
				return err
			}
			l.seqs[c.Seq[1]-'0']++
		case lived && !lives && step != item.VerbComplete:
			return fmt.Errorf("%s has removed item %s", step, id)
		}
		if step == item.VerbComplete && held.State.ID == id && s.etcd.Revision() > before.Revision() {
			l.done++
		}
		for _, key := range before.Under(keys.Taken()) {
			if _, of, _ := cut(key.Name); of == id && s.etcd.Get(key.Name).Modified != key.Modified {
				if err := s.endOf(step, by, held, key, before); err != nil {
					return err
				}
			}
		}
		for _, key := range s.etcd.Under(keys.Taken()) {
			session, of, _ := cut(key.Name)
			if of != id || before.Get(key.Name).Modified == key.Modified {
				continue
			}
			if step != stepClaim || s.workers[by].dead {
				continue
			}
			if before.Get(keys.Paused()).Modified > 0 {
				return fmt.Errorf("%s was claimed from a queue that is paused", id)
			}
			st, err := keys.TakenState(key.KV())
			if err != nil {
				return err
			}
			w := &s.workers[by]
			w.fresh = append(slices.Clip(w.fresh), hold{
				Held:  item.Held{Keys: keys, Session: session, State: st, Rev: key.Modified},
				state: item.Encode(st),
			})
		}
	}
	return nil
}

// alive reports whether a content is of an item that is not completed.
func alive(content etcdmodel.Key) bool {
	return content.Modified > 0 && !strings.Contains(content.Value, `"done":`)
}

// endOf notes how a hold has ended, and checks that it may.
func (s *State) endOf(step string, by int, held item.Held, key *etcdmodel.Key, before etcdmodel.State) error {
	session, id, _ := cut(key.Name)
	lives := before.Get(keys.Own(session)).Modified > 0
	switch {
	case held.Rev > 0 && !lives:
		return fmt.Errorf("%s of %s was carried out for a session that is over", step, id)
	case step == stepRecover && lives:
		return fmt.Errorf("%s was taken from a session that lives", id)
	}
	end := &ending{step: step, by: held.By}
	ended := item.Ended{Keys: keys, ID: id, Rev: s.etcd.Revision()}
	var err error
	if end.Ending, err = ended.Judge(s.ask(ended.Build()...)); err != nil {
		return err
	}
	if end.Key != "" {
		if _, err := end.JudgeLeft(s.ask(end.Left()...)); err != nil {
			return err
		}
	}
	for i := range s.workers {
		w := &s.workers[i]
		for _, holds := range []*[]hold{&w.holds, &w.fresh} {
			n := slices.IndexFunc(*holds, func(h hold) bool { return h.Rev == key.Modified && h.State.ID == id })
			if n < 0 {
				continue
			}
			if step == stepGiveBack && holds == &w.holds && !(*holds)[n].Elsewhere {
				return fmt.Errorf("%s was given back under %s, which has it", id, w.name(i))
			}
			*holds = slices.Clone(*holds)
			(*holds)[n].end = end
		}
	}
	return nil
}

// cut returns the session and the item of the key of a taken item.
func cut(key string) (session, id string, ok bool) {
	return strings.Cut(key[len(keys.Taken()):], "/")
}

// arrive has the request arrive for whose reply a worker waits.
func (s *State) arrive(i int) error {
	w := &s.workers[i]
	resp, err := s.carry(w.sent)
	if err != nil {
		return err
	}
	sent := w.sent
	w.sent, w.reply = nil, resp
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(resp)
	if err != nil {
		return err
	}
	h := fnv.New128a()
	_, _ = h.Write(append(b, sent.sig...))
	w.answer = h.Sum(nil)
	return nil
}

// strayArrives has a request arrive for which nobody waits.
func (s *State) strayArrives(n int) error {
	r := s.strays[n]
	s.strays = slices.Delete(slices.Clone(s.strays), n, n+1)
	_, err := s.carry(r)
	return err
}

// expire ends the lease of a session.
func (s *State) expire(i int) {
	s.etcd, _ = s.etcd.Revoke(leaseOf(i, s.workers[i].session))
}

func (s *State) leaseLives(i int) bool {
	w := &s.workers[i]
	return w.session > 0 && s.etcd.Lives(leaseOf(i, w.session))
}
