package protocol

import (
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// EndEvent is what has become of the last action of an [Ending].
type EndEvent struct {
	Kind  EndEventKind
	Reply *pb.TxnResponse // of EndReplied
}

// EndEventKind is a kind of event.
type EndEventKind int

// The kinds of events. A read changes nothing, so its outcome is never unknown.
const (
	// EndBegins begins an ending for a caller that waits for the result.
	EndBegins EndEventKind = iota
	// EndLeft leaves it to the background at once.
	EndLeft

	// EndReplied ends a request or a read: with a reply, which may be that it was refused.
	EndReplied
	// EndUnknown ends a request that may have been carried out, or may be yet.
	EndUnknown
	// EndPassing ends one that has changed nothing. The same may succeed later.
	EndPassing
	// EndNoLease ends one that has changed nothing, because a lease that it names does not exist.
	EndNoLease
	// EndCompacted ends a read of the past, which is gone.
	EndCompacted
	// EndFinal ends one that has changed nothing. The same would fail again.
	EndFinal

	// EndResumes ends a pause, and has an unsettled ending go on.
	EndResumes
	// EndTimeUp means that no pause is possible any more: the caller's time or the claim is over.
	EndTimeUp

	// EndSessionGone answers EndAsk: the session has ended.
	EndSessionGone
	// EndSessionLives answers EndAsk: the session has not ended, as far as is known.
	EndSessionLives
)

// EndAction is what is to be done next for an [Ending]. The driver does it, and then calls Step with
// what came of it.
type EndAction struct {
	Kind   EndActionKind
	Locals LocalFate // to be done first

	Request txn.Request // of EndSend and EndRead
	To      string      // the attempt that the request hands the key to, or has handed it to, or ""
	Tries   int         // of EndSend and EndPause: how many requests came before, see retry.Delay

	Rev     int64 // of EndGiven and EndReleased: at which the claim ended, 0 if that is not known
	Away    bool  // of EndReleased: its note and its notice may be left
	Emptied bool  // of EndReleased: the record of the key has no claim any more
	Remains bool  // of EndReleased: and is left

	State  State // of EndLost: Kept if it was lost with its session, which has recorded that
	Unsure bool  // of EndLost: a request may have been carried out before
}

// EndActionKind is a kind of action.
type EndActionKind int

// The kinds of actions. The last five end the call: what the caller gets is known.
const (
	// EndSend sends a request.
	EndSend EndActionKind = iota
	// EndRead sends a request that changes nothing.
	EndRead
	// EndPause waits before the next try.
	EndPause
	// EndAsk finds out whether the session's lease is gone.
	EndAsk

	// EndGiven: the waiter of the same client has the key, at Rev.
	EndGiven
	// EndReleased: the claim is given up.
	EndReleased
	// EndLost: the claim was found to be lost.
	EndLost
	// EndStays: nothing was carried out, and the claim is still held.
	EndStays
	// EndUnsettled: the claim is given up in the background, by EndResumes. A call that waits returns
	// that the outcome is unknown. In the background it means: not yet.
	EndUnsettled
)

// Ends reports whether the action ends the call.
func (k EndActionKind) Ends() bool { return k >= EndGiven }

// LocalFate is what becomes of the callers of the same client that wait for the claim.
type LocalFate int

// The fates of local waiters.
const (
	LocalsStay    LocalFate = iota
	LocalsReturn            // the one that was to get the key is the first of them again
	LocalsEnqueue           // likewise, and then all go to the line in etcd
)
