package protocol

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Take claims a key that is free, with an empty line. It does not wait.
type Take struct{ *Try }

// Build returns the request. Its second branch is sent with every try, so it reads only what
// explains most failures.
func (s Take) Build() txn.Request {
	in := s.newcomer()
	if s.Mode.Keys().Record {
		in.Failure = s.reads()
	} else {
		in.Failure = append(append(in.Failure, txn.Get([]byte(s.Own(s.Mode.Keys().Claim)))), s.besides()...)
	}
	return s.request(in)
}

// Taken is the reply to a Take.
type Taken struct {
	Rev    int64              // at which the try has the key, 0 if it does not
	OwnKey []*mvccpb.KeyValue // Own as it was read
	Own    *mvccpb.KeyValue   // the claim that stood in its way, if that was read
	Beside *mvccpb.KeyValue   // the key beside it, likewise
	Seen   *Seen              // all that explains the refusal; nil: ask for it by a Look
}

// Judge takes the reply apart.
func (s Take) Judge(resp *pb.TxnResponse) Taken {
	if resp.Succeeded {
		s.Granted(resp.Header.Revision)
		return Taken{Rev: resp.Header.Revision}
	}
	if !s.Mode.Keys().Record {
		own := first(resp.Responses[0])
		taken := Taken{Rev: s.Found(own), Own: own, OwnKey: resp.Responses[0].GetResponseRange().Kvs}
		if s.Beside != nil {
			taken.Beside = first(resp.Responses[1])
		}
		return taken
	}
	v := s.seen(resp.Responses, resp.Header.Revision)
	return Taken{Rev: s.Has(v), Own: v.Own, Seen: &v}
}

// TakeAll claims the keys of several tries or none. The first of them has what the caller asks
// for beside the keys.
type TakeAll []*Try

// Build returns the request. It reads the epoch, and for each key its owner and how many wait.
func (s TakeAll) Build() txn.Request {
	lead := s[0]
	in := &pb.TxnRequest{Failure: []*pb.RequestOp{txn.Get([]byte(lead.Layout.Epoch()))}}
	var concern []string
	for i, t := range s {
		one := t.newcomer()
		in.Compare, in.Success = append(in.Compare, one.Compare...), append(in.Success, one.Success...)
		keys := t.Mode.Keys()
		in.Failure = append(in.Failure, txn.Get([]byte(t.Own(keys.Claim))), t.count(t.Waiting(keys.Line), keys.before(t.Layout)))
		if i > 0 {
			concern = append(concern, keys.Line)
		}
	}
	r := lead.request(in)
	r.Also = append(r.Also, concern...)
	return r
}

// Each is the reply to a TakeAll.
type Each struct {
	Rev   int64 // at which the tries have their keys, as far as the first shows; 0 if they have not
	Stray []int // tries that have their keys although the first has not: it was taken away since
	Seen  []Seen
	Epoch []*mvccpb.KeyValue
	At    int64 // revision of what was read
}

// Judge takes the reply apart.
func (s TakeAll) Judge(resp *pb.TxnResponse) Each {
	if resp.Succeeded {
		for _, t := range s {
			t.Granted(resp.Header.Revision)
		}
		return Each{Rev: resp.Header.Revision}
	}
	r := Each{Epoch: resp.Responses[0].GetResponseRange().Kvs, At: resp.Header.Revision}
	for i, t := range s {
		v := Seen{Rev: r.At, EpochKey: r.Epoch, Waiting: resp.Responses[2+2*i].GetResponseRange().Count}
		v.Own = first(resp.Responses[1+2*i])
		r.Seen = append(r.Seen, v)
		switch rev := t.Found(v.Own); {
		case rev > 0 && i == 0:
			r.Rev = rev
		case rev > 0:
			r.Stray = append(r.Stray, i)
		}
	}
	return r
}
