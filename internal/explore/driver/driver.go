// Package driver mirrors what the drivers of an attempt and of an ending add to the machines of internal/protocol: what an
// answer means, and that none came. See drive.go of internal/acquire and ending.go of internal/term.
package driver

import (
	"errors"

	"github.com/etcdclaims/claims/internal/protocol"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// SessionEnded is the event of an attempt whose session has ended.
var SessionEnded = protocol.Event{Kind: protocol.SessionEnded, Err: errors.New("the session has ended")}

var errUnknown = errors.New("no answer came")

// StepNames are the steps of an attempt, by the phase in which they are sent.
var StepNames = map[protocol.Phase]string{
	protocol.Taking: "Take", protocol.Looking: "Look", protocol.Joining: "Join", protocol.Advancing: "Advance",
	protocol.Confirming: "Confirm", protocol.Clearing: "Clear", protocol.Leaving: "Leave",
}

// Answer is the event of an answer to an attempt. An error is that of a lease that is gone; see lease.Session.Gone.
func Answer(resp *pb.TxnResponse, err error) protocol.Event {
	if err != nil {
		return protocol.Event{Kind: protocol.Failed, Class: protocol.SessionGone, Err: err}
	}
	return protocol.Event{Kind: protocol.Replied, Reply: resp}
}

// NoAnswer is the event of an attempt that waits no longer for the answer to what it did.
func NoAnswer(did protocol.Do) protocol.Event {
	class := protocol.Unknown
	if did == protocol.DoQuery {
		class = protocol.Passing
	}
	return protocol.Event{Kind: protocol.Failed, Class: class, Err: errUnknown}
}

// EndAnswer is the event of an answer to an ending; see exit.came.
func EndAnswer(resp *pb.TxnResponse, err error) protocol.EndEvent {
	switch {
	case err == nil:
		return protocol.EndEvent{Kind: protocol.EndReplied, Reply: resp}
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return protocol.EndEvent{Kind: protocol.EndNoLease}
	case errors.Is(err, rpctypes.ErrCompacted):
		return protocol.EndEvent{Kind: protocol.EndCompacted}
	}
	return protocol.EndEvent{Kind: protocol.EndFinal} // such as a key that it puts and deletes: a hand-over to itself
}

// NoEndAnswer is the event of an ending that waits no longer for the answer to what it did.
func NoEndAnswer(did protocol.EndActionKind) protocol.EndEvent {
	if did == protocol.EndRead {
		return protocol.EndEvent{Kind: protocol.EndPassing}
	}
	return protocol.EndEvent{Kind: protocol.EndUnknown}
}

// GoOn has an ending go on in the background until it sends a request, or is over; see exit.goOn.
func GoOn(end *protocol.Ending, ev protocol.EndEvent) protocol.EndAction {
	for a := end.Step(ev); ; {
		switch a.Kind {
		case protocol.EndUnsettled:
			a = end.Step(protocol.EndEvent{Kind: protocol.EndResumes})
		case protocol.EndPause: // the claim is over
			a = end.Step(protocol.EndEvent{Kind: protocol.EndTimeUp})
		default:
			return a
		}
	}
}

// EndName names the request of an ending.
func EndName(e *protocol.Ending, a protocol.EndAction) string {
	switch {
	case a.Kind == protocol.EndRead:
		return "read of the line"
	case a.To != "":
		return "hand-over"
	}
	return "release (" + e.String() + ")"
}
