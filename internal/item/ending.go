package item

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Ended reads how a hold ended, by etcd's own history: the request that deleted the item's key.
type Ended struct {
	Keys
	ID  string
	Key string // of the item
	Rev int64  // of the deletion
}

// Build returns the operations.
func (s Ended) Build() []*pb.RequestOp {
	return []*pb.RequestOp{
		at(s.Rev, get(s.Content(s.ID))), at(s.Rev, get(s.Place(s.ID))),
		at(s.Rev-1, count(get(s.Content(s.ID)))), at(s.Rev, count(get(s.Spec()))),
		at(s.Rev, get(s.notice(s.Key))),
	}
}

// Ending is the request that ended a hold.
type Ending struct {
	// Verb is "cancel" if the notice of that was put with it, "complete" if the item's content was removed with
	// it, "" if a program other than this package removed it before or with other keys of the queue, and else
	// that of its place.
	Verb string
	By   string // the adopted lease whose verb it was, see Held.By
	Key  string // where the item went, if its place shows that
	Rev  int64

	Notice Notice // if the item was cancelled
}

// Judge takes the reply apart.
func (s Ended) Judge(resp *pb.TxnResponse) (Ending, error) {
	end := Ending{Rev: s.Rev}
	items, places := kvs(resp, 0), kvs(resp, 1)
	var note Place // of this very request
	if revision(places) == s.Rev {
		var err error
		if note, err = Decode[Place](places[0].Key, places[0].Value); err != nil {
			return end, err
		}
	}
	if end.By = note.By; note.Key != "" {
		end.Key = s.Placed(note)
	}
	if notices := kvs(resp, 4); revision(notices) == s.Rev {
		end.Verb = VerbCancel
		end.Notice, _ = Decode[Notice](notices[0].Key, notices[0].Value) // of a newer version: cancelled all the same
		return end, nil
	}
	if len(items) == 0 {
		// No request of this package removes a taken key and leaves the queue without its spec.
		if counted(resp, 2) > 0 && counted(resp, 3) > 0 {
			end.Verb = VerbComplete
		}
		return end, nil
	}
	c, err := Decode[Content](items[0].Key, items[0].Value)
	if err == nil && c.Done != nil && items[0].ModRevision == s.Rev {
		end.Verb, end.By = VerbComplete, c.Done.By
		return end, nil
	}
	if end.Verb = note.Verb; end.Verb == "" {
		end.Verb = VerbHeartbeat // it was moved to another session
	}
	return end, nil
}

// Mine reports whether it was a verb of the hold. Move finds its own by its nonce.
func (h Held) Mine(end Ending) bool {
	return end.By == h.By && end.Verb != VerbHeartbeat && end.Verb != VerbCancel && end.Verb != ""
}

// Left reads the state in which the request has left the item.
func (e Ending) Left() []*pb.RequestOp { return []*pb.RequestOp{at(e.Rev, get(e.Key))} }

// JudgeLeft takes the reply apart.
func (e Ending) JudgeLeft(resp *pb.TxnResponse) (State, error) {
	left := kvs(resp, 0)
	if len(left) == 0 {
		return State{}, fmt.Errorf("no key %q at revision %d", e.Key, e.Rev)
	}
	return DecodeState(left[0])
}
