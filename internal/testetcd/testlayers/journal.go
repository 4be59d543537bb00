package testlayers

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/etcdclaims/claims/internal/memetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Journal is what was called, in its order.
type Journal struct {
	mu   sync.Mutex // guards what
	what []string
}

// Note adds a call.
func (j *Journal) Note(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.what = append(j.what, what)
}

// Take returns what was called since it was called last.
func (j *Journal) Take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := strings.Join(j.what, ", ")
	j.what = nil
	return all
}

// Answers take the place of what etcd answers to transactions. The zero value answers none.
type Answers struct {
	named func(kind string, in *pb.TxnRequest) string // names a transaction, or returns "" to ignore it
	sent  Journal                                     // the names of the transactions

	mu    sync.Mutex                    // guards what follows
	sends func(in *pb.TxnRequest) error // in place of the transaction
	reply func(in *pb.TxnRequest) error // in place of its reply
}

// Attend has the transactions of an etcd answered. named names those that are, by their kind and content.
func (a *Answers) Attend(etcd *memetcd.Etcd, named func(kind string, in *pb.TxnRequest) string) {
	a.named = named
	etcd.Sent = func(kind string, in *pb.TxnRequest) error {
		if name := a.name(kind, in); name != "" {
			a.sent.Note(name)
		}
		return a.answer(&a.sends, kind, in)
	}
	etcd.Replied = func(kind string, in *pb.TxnRequest) error { return a.answer(&a.reply, kind, in) }
}

func (a *Answers) name(kind string, in *pb.TxnRequest) string {
	if in == nil {
		return ""
	}
	return a.named(kind, in)
}

func (a *Answers) answer(by *func(in *pb.TxnRequest) error, kind string, in *pb.TxnRequest) error {
	a.mu.Lock()
	answer := *by
	a.mu.Unlock()
	if answer == nil || a.name(kind, in) == "" {
		return nil
	}
	return answer(in)
}

// Answer sets what comes in place of transactions, and in place of their replies.
func (a *Answers) Answer(sends, reply func(in *pb.TxnRequest) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sends, a.reply = sends, reply
}

// Steps returns the names of the transactions since it was called last.
func (a *Answers) Steps() string { return a.sent.Take() }

// Once returns an answer that is given once, and Always one that is given to all transactions.
func Once(err error) func(*pb.TxnRequest) error {
	var given atomic.Bool
	return func(*pb.TxnRequest) error {
		if given.Swap(true) {
			return nil
		}
		return err
	}
}

// Always is described at Once.
func Always(err error) func(*pb.TxnRequest) error { return func(*pb.TxnRequest) error { return err } }
