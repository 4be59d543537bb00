package protocol

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// EventKind is a kind of events.
type EventKind int

// The events of an acquisition.
const (
	BeginTake    EventKind = iota // take the key if that needs no waiting
	BeginJoin                     // take the key, or else a place in line, and wait there
	Replied                       // Event.Reply answers the last request
	Failed                        // the last action failed, as Event.Class and Event.Err show
	Learnt                        // Event.Epoch is the present epoch
	Prepared                      // the try is ready for another request
	Resumed                       // the pause is over
	Noticed                       // Event.KV is a releaser's notice
	Heard                         // Event.KV has changed, or was deleted
	Woken                         // what the try waits for may have changed
	Opened                        // the try may take the key as Event.Over says
	TimeUp                        // the caller waits no longer; Event.Err is why
	SessionEnded                  // the session is lost; Event.Err is why
	eventKinds   int       = iota
)

// Event is what a driver reports to an acquisition. Noticed, Heard, Woken and Opened are hints. Outside
// of a wait the acquisition ignores them. A hint that is lost costs time, but no claim.
type Event struct {
	Kind    EventKind
	Reply   *pb.TxnResponse
	Class   Class
	Err     error
	Epoch   *txn.Epoch
	KV      *mvccpb.KeyValue
	Deleted bool // KV was deleted
	Over    *Over
	Shares  bool // of Heard, Woken and Opened: the client has a claim on the key that the caller may share
}

// Class is what the failure of a request means for the acquisition.
type Class int

// The classes of failures.
const (
	Refused     Class = iota // it was not carried out, and would fail again
	Transient                // it was not carried out, and may succeed when it is sent again
	Passing                  // of DoQuery and DoPrepare: it may succeed when it is tried again
	Unknown                  // it may have been carried out, or may be yet
	NoSpace                  // the same, but etcd has answered: it does not arrive any more
	SessionGone              // the session's lease does not exist
	LeaseGone                // another lease does not exist, which the next request does not name
	Barred                   // etcd does not let the try take the key as Event.Over said
)

// Do is what a driver does next for an acquisition.
type Do int

// The kinds of actions.
const (
	DoStay    Do = iota // nothing: the event has changed nothing
	DoSend              // send Action.Request: then Replied or Failed
	DoQuery             // the same; the request puts nothing of the try, so its failure leaves no doubt
	DoLearn             // take over Action.EpochKey as read at Action.Rev: then Learnt or Failed
	DoPrepare           // make Value, Beside and what Mode knows of the record anew: then Prepared or Failed
	DoPause             // pause, longer after more Action.Pauses before: then Resumed
	DoWait              // wait until Action.Position has changed: then Noticed, Heard, Woken or Opened
	DoEnd               // the acquisition has ended, as Action.End shows
)

// Answer is how an acquisition has ended.
type Answer int

// The ends of an acquisition. The try has the key with AnswerWon. With AnswerUnsettled that is not known.
// With all others the try does not have the key.
const (
	NotEnded        Answer = iota
	AnswerWon              // the try has the key since Action.Rev
	AnswerHeld             // Action.Own has the key
	AnswerBehind           // the key is free, and Action.Waiting callers are in line for it
	AnswerUnmet            // a condition of the caller does not hold
	AnswerAgain            // the caller has learnt something: another try makes sense at once
	AnswerLater            // another try makes sense after a pause, on another lease if one was gone
	AnswerLostPlace        // the place in line is gone, or the session with it
	AnswerStopped          // the caller waits no longer
	AnswerUnsettled        // the outcome of a request is unknown, and cannot be found out
	AnswerFailed           // Action.Err is why
)

// Action is what a driver does next for an acquisition. Found and News can go with any action; Undo
// and Strays go with DoEnd. The acquisition decides which cleanup is due, its driver does not.
type Action struct {
	Do       Do
	End      Answer
	Request  txn.Request
	EpochKey []*mvccpb.KeyValue
	Rev      int64
	Pauses   int
	Position Position // DoWait: in line; DoEnd: the last one known

	Own     *mvccpb.KeyValue // AnswerHeld: what excludes the try
	Waiting int64            // AnswerHeld and AnswerBehind: how many callers wait in line
	Sharers int64            // AnswerHeld: how many callers share the key, if Own is their record
	Of      int              // AnswerHeld and AnswerBehind: which of several tries, see AllOrNone
	Err     error            // DoEnd: why; DoStay: why a notice cannot be read
	Why     error            // AnswerUnsettled: why the outcome cannot be found out

	Undo   bool  // remove all that the try has put or may yet put; see Undoing
	Twice  bool  // operations of the caller were carried out already, and must not be once more
	Strays []int // which of several tries have their keys although the first has not: undo those

	Found  State            // what became of the claim that the try was to supersede
	News   bool             // the key beside the claim has changed, to Beside
	Beside *mvccpb.KeyValue // nil if it was deleted
}
