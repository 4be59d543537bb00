package items

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/explore/values"
	"github.com/etcdclaims/claims/internal/item"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

const (
	prefix = "/c/"
	// keep is the lease of what remains of completed items.
	keep int64 = 7
)

var (
	keys = item.NewKeys(prefix, item.Spec{Name: "q"})
	noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	ids  = []string{"a", "b"}
)

// State is a state of the world.
type State struct {
	scope   *Scope
	etcd    etcdmodel.State
	workers [2]worker
	strays  []*request // for which nobody waits
	left    Budget
	ledger  [2]ledger
}

// ledger is what has happened to an item, as etcd carried it out.
type ledger struct {
	put, done int8 // how often
	seqs      [2]int8
}

// request is one that is under way. It never changes.
type request struct {
	step string
	by   int       // the worker
	held item.Held // of a verb
	in   *pb.TxnRequest
	sig  []byte // stands for all of it
}

// Start returns the first state: both workers have sessions.
func Start(scope *Scope) State {
	s := State{scope: scope, etcd: etcdmodel.New(1), left: scope.Budget}
	if scope.Recorded {
		s.etcd = etcdmodel.Recorded()
	}
	s.etcd, _ = s.etcd.Grant(keep)
	s.put(keys.Spec(), `{"v":1}`)
	for i := range scope.Items {
		if scope.Enqueue {
			for w := range s.workers {
				s.workers[w].todo |= 1 << i
			}
			continue
		}
		s.etcd, _, _ = s.etcd.Txn(enqueue(scope, 0, i).Build())
		s.ledger[i].put++
	}
	for w := range s.workers {
		_ = s.open(w)
	}
	s.etcd = s.etcd.Compact(s.etcd.Revision())
	return s
}

// Etcd returns the etcd.
func (s State) Etcd() etcdmodel.State { return s.etcd }

func (s *State) put(key, value string) {
	op := &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}
	s.etcd, _, _ = s.etcd.Txn(&pb.TxnRequest{Success: []*pb.RequestOp{{Request: op}}})
}

// enqueue is the step by which a worker enqueues an item. Those of two workers have the same id.
func enqueue(scope *Scope, w, i int) item.Enqueue {
	seq := fmt.Sprintf("%s%d", ids[i], w)
	it := item.New{ID: ids[i], Given: scope.Remember, Seq: seq, Vesting: noon, Max: scope.Max}
	return item.Enqueue{Keys: keys, New: it, Now: noon}
}

// ask carries out reads.
func (s *State) ask(reads ...*pb.RequestOp) *pb.TxnResponse {
	_, resp, err := s.etcd.Txn(&pb.TxnRequest{Success: reads})
	if err != nil {
		panic(err)
	}
	return resp
}

// sign makes the request known by a hash.
func (r *request) sign() *request {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r.in)
	if err != nil {
		panic(err)
	}
	h := fnv.New128a()
	_, _ = h.Write(b)
	_, _ = h.Write([]byte(r.step + strconv.Itoa(r.by)))
	_, _ = h.Write([]byte(strconv.FormatInt(r.held.Rev, 10) + r.held.By))
	r.sig = h.Sum(nil)
	return r
}

// Append appends what the state is.
func (s State) Append(b []byte) []byte {
	c := values.Code(b)
	s.etcd.Walk(&c, func() {})
	b = c
	for i := range s.workers {
		b = s.workers[i].append(b)
	}
	for _, r := range s.strays {
		b = append(b, r.sig...)
	}
	for _, l := range s.ledger {
		b = append(b, byte(l.put), byte(l.done), byte(l.seqs[0]), byte(l.seqs[1]))
	}
	for _, n := range s.left {
		b = append(b, byte(n))
	}
	return b
}

// stray adds a request for which nobody waits.
func (s *State) stray(r *request) {
	s.strays = append(slices.Clip(s.strays), r)
	slices.SortFunc(s.strays, func(a, b *request) int { return bytes.Compare(a.sig, b.sig) })
}
