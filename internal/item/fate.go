package item

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Fate follows an item until it is completed, dead or gone.
type Fate struct {
	Keys
	ID   string
	Gone bool // the id is free, or another item has it

	created         int64  // revision at which the content was put first: it stays until the item is gone, or replaced
	seq             string // of the item
	content, placed []*mvccpb.KeyValue
}

// Build reads the item.
func (s *Fate) Build() []*pb.RequestOp {
	return []*pb.RequestOp{get(s.Content(s.ID)), get(s.Place(s.ID))}
}

// Judge takes over the reply.
func (s *Fate) Judge(resp *pb.TxnResponse) {
	s.content, s.placed = kvs(resp, 0), kvs(resp, 1)
	s.settle()
}

// Hear takes over a later change of one of the two keys.
func (s *Fate) Hear(ev *mvccpb.Event) {
	var now []*mvccpb.KeyValue
	if ev.Type == mvccpb.Event_PUT {
		now = append(now, ev.Kv)
	}
	if string(ev.Kv.Key) == s.Content(s.ID) {
		s.content = now
		s.settle()
	} else {
		s.placed = now
	}
}

func (s *Fate) settle() {
	if len(s.content) == 0 {
		s.Gone = true
		return
	}
	created := s.content[0].CreateRevision
	c, err := s.Read()
	switch {
	case s.created == 0:
		s.created, s.seq = created, c.Seq
	case created != s.created, err == nil && c.Seq != s.seq:
		s.Gone = true
	}
}

// Read decodes the content of an item that is not gone. It has Done if the item was completed.
func (s *Fate) Read() (Content, error) { return Decode[Content](s.content[0].Key, s.content[0].Value) }

// Buried reports whether the item is a dead letter.
func (s *Fate) Buried() bool { return s.Known(s.placed) == HadBuried }
