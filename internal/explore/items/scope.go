// Package items is a world of two workers and the items of one queue, for package search. The requests
// and what their replies mean are those of package item: this package adds what package queue does
// between them, as states of a worker, and the network.
//
// A worker does one thing after the other. A process of package queue has several goroutines, whose
// requests are as independent as those of two workers. The time of each item comes whenever a worker
// moves it. Reads are answered at once: what follows from them is conditions of the next request.
package items

import (
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Scope is what a search covers.
type Scope struct {
	Name     string
	Items    int
	Max      int    // attempts of each item
	Batch    int    // how many items a worker claims at once
	AnyOrder bool   // it claims any of those that are ready, else the first
	Enqueue  bool   // each worker enqueues all items; else they are there
	Remember bool   // ids of completed items are remembered
	Budget   Budget // how often each kind of event may happen

	// Recorded has etcd begin as a real one, and remember what is done to it.
	Recorded bool
	// Change is a deliberate fault: it returns the request that is sent in place of a step's own.
	Change func(step string, in *pb.TxnRequest) *pb.TxnRequest
	// Hasty is another: a worker takes no reply for a refusal.
	Hasty bool
	// Idle is another: nobody recovers the items of a session that is over.
	Idle bool
}

// Kind is a kind of events that are limited: of faults, and of what handlers choose.
type Kind int

// The kinds.
const (
	Late      Kind = iota // a worker waits no longer for a reply; the request arrives later, or never
	LostReply             // a worker waits in vain: the request was carried out
	Twice                 // the network delivers a request again, later
	Crash                 // a process dies; its lease ends some time later
	Expiry                // a lease ends, and its process does not know
	Fail                  // a handler fails, and its item waits for its back-off
	Bury                  // a handler fails for good
	Discard               // a handler discards its item
	Release               // a handler gives its item back
	Snooze                // a handler snoozes
	GiveUp                // a caller waits no longer for the outcome of a verb, and gives the item up
	Alarm                 // a worker takes a session that lives for one that is over
	Adopt                 // a worker adopts what the other one holds, which goes on
	Move                  // a worker moves an adopted item to its session
	Pause                 // an operator pauses the queue, and resumes it some time later
	kinds     = iota
)

var kindNames = [kinds]string{
	"request lost or late", "reply lost", "request twice", "crash", "lease lost",
	"handler failed", "buried", "discarded", "given back", "snoozed",
	"caller gave up", "false alarm", "adopted", "moved", "queue paused",
}

// Describe names what may happen in a scope besides what must.
func (s *Scope) Describe() string {
	var names []string
	for kind, n := range s.Budget {
		if n > 0 {
			names = append(names, kindNames[kind])
		}
	}
	return "each of: " + strings.Join(names, ", ")
}

// Budget is how often each kind may happen.
type Budget [kinds]int8

// Once returns kinds that may happen once each.
func Once(all ...Kind) (b Budget) {
	for _, kind := range all {
		b[kind]++
	}
	return b
}

// Scopes returns those that are searched, each to its end.
func Scopes() []*Scope {
	return []*Scope{
		{Name: "lost messages", Items: 2, Max: 2, Batch: 1, Budget: Once(Late, LostReply)},
		{Name: "crash and loss", Items: 2, Max: 2, Batch: 1, Budget: Once(Crash, Expiry)},
		{Name: "false alarm", Items: 2, Max: 2, Batch: 1, Budget: Once(Alarm, Expiry)},
		{Name: "crash and late request", Items: 2, Max: 2, Batch: 1, Budget: Once(Crash, Late)},
		{Name: "loss and late request", Items: 1, Max: 2, Batch: 1, Budget: Once(Expiry, Late, LostReply)},
		{Name: "twice", Items: 1, Max: 3, Batch: 1, Budget: Once(Twice, Late, Fail, Release)},
		{Name: "batch", Items: 2, Max: 2, Batch: 2, Budget: Once(Late, GiveUp)},
		{Name: "verbs", Items: 1, Max: 3, Batch: 1, Budget: Once(Fail, Bury, Discard, Release, Snooze, Late)},
		{Name: "last attempt", Items: 1, Max: 1, Batch: 1, Budget: Once(Fail, Late)},
		{Name: "verbs of two items", Items: 2, Max: 2, Batch: 1, Budget: Once(Fail, Release)},
		{Name: "caller gives up", Items: 1, Max: 2, Batch: 1, Budget: Once(GiveUp, Late, LostReply, Release)},
		{Name: "adopted", Items: 1, Max: 2, Batch: 1, Budget: Once(Adopt, Move, Late, LostReply)},
		{Name: "adopted and given up", Items: 1, Max: 2, Batch: 1, Budget: Once(Adopt, Move, GiveUp)},
		{Name: "adopted and lost", Items: 1, Max: 2, Batch: 1, Budget: Once(Adopt, Move, Expiry, Release)},
		{Name: "pause", Items: 2, Max: 2, Batch: 1, Budget: Once(Pause, Late)},
		{Name: "enqueue", Items: 2, Max: 1, Batch: 1, Enqueue: true, Remember: true, Budget: Once(Late)},
		{Name: "enqueue of forgotten ids", Items: 1, Max: 1, Batch: 1, Enqueue: true, Budget: Once(Late, LostReply)},
	}
}
