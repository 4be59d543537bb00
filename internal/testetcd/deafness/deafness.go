// Package deafness has the ways in which a watch can stop delivering while its
// connection is as good as ever, as faults for tests.
package deafness

import (
	"slices"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// The kinds of faults. Cancel also drops events, so that a watch that should have ended
// stays silent. It needs a compaction to matter.
const (
	Put         = "put"
	Delete      = "delete"
	EveryEvent  = "every event"
	Cancel      = "cancel"
	Progress    = "progress"
	CreateReply = "create reply"
	LateEvents  = "late events"
)

// late is longer than any test that uses Kinds lasts, and not much: the connection closes when
// what is late has come, and an etcd lives until then.
const late = 5 * time.Minute

// Kinds returns a fault of each kind, for all watches of a host.
func Kinds() map[string]claimtest.Fault {
	return map[string]claimtest.Fault{
		Put:         on(claimtest.Fault{Edit: drop(mvccpb.Event_PUT)}),
		Delete:      on(claimtest.Fault{Edit: drop(mvccpb.Event_DELETE)}),
		EveryEvent:  on(claimtest.Fault{Edit: func(reply any) { reply.(*pb.WatchResponse).Events = nil }}),
		Cancel:      on(claimtest.Fault{Edit: dropCancel}),
		Progress:    on(claimtest.Fault{Edit: dropProgress}),
		CreateReply: on(claimtest.Fault{LoseReply: true}),
		LateEvents:  on(claimtest.Fault{Edit: func(any) { time.Sleep(late) }}),
	}
}

func on(f claimtest.Fault) claimtest.Fault {
	f.On, f.Times = claimtest.Watch, -1
	return f
}

func drop(kind mvccpb.Event_EventType) func(any) {
	return func(reply any) {
		resp := reply.(*pb.WatchResponse)
		resp.Events = slices.DeleteFunc(resp.Events, func(ev *mvccpb.Event) bool { return ev.Type == kind })
	}
}

func dropCancel(reply any) {
	resp := reply.(*pb.WatchResponse)
	if resp.Canceled || resp.CompactRevision > 0 {
		resp.Canceled, resp.CompactRevision, resp.CancelReason = false, 0, ""
	}
	resp.Events = nil
}

// dropProgress makes a progress notification unrecognizable. All other messages pass.
func dropProgress(reply any) {
	resp := reply.(*pb.WatchResponse)
	if len(resp.Events) == 0 && !resp.Created && !resp.Canceled {
		resp.Header = nil
	}
}
