package protocol_test

import (
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// end is an ending of the claim of c, its driver, and what the driver was asked to do.
type end struct {
	*model
	*protocol.Ending
	c     *caller
	did   protocol.EndAction
	story []string
}

// newEnd returns an ending of a claim that has a line.
func newEnd(m *model, c *caller) *end {
	return &end{model: m, c: c, Ending: &protocol.Ending{Release: protocol.Release{Held: c.held()}}}
}

// The operations of a holder in these tests, and their kinds of proof.
var (
	puts    = protocol.EndOps{Ops: []*pb.RequestOp{txn.Put([]byte("/x"), "done", int64(0))}}
	deletes = protocol.EndOps{Ops: []*pb.RequestOp{txn.Delete([]byte("/x"))}, Deletes: "/x"}
	unseen  = protocol.EndOps{Ops: []*pb.RequestOp{txn.Delete([]byte("/x"))}}
)

// outcomes are what can become of an action, by the words of a story.
var outcomes = map[string]protocol.EndEventKind{
	"begins": protocol.EndBegins, "left": protocol.EndLeft,
	"no reply": protocol.EndUnknown, "passing": protocol.EndPassing, "no lease": protocol.EndNoLease,
	"compacted": protocol.EndCompacted, "final": protocol.EndFinal,
	"resumes": protocol.EndResumes, "time up": protocol.EndTimeUp, "session gone": protocol.EndSessionGone,
	"session lives": protocol.EndSessionLives,
}

// ways are what can become of a request on its way.
var ways = map[string]fate{"arrives": arrives, "loses": loses, "loses reply": losesReply, "comes late": comesLate, "arrives twice": comesTwice}

// hap makes something happen, and so the driver do what follows.
func (e *end) hap(what string) {
	e.tb.Helper()
	if kind, ok := outcomes[what]; ok {
		e.step(protocol.EndEvent{Kind: kind})
		return
	}
	if way, ok := ways[what]; ok {
		if e.did.Kind > protocol.EndRead {
			e.tb.Fatalf("nothing was sent that %s: %v", what, e.story)
		}
		e.fate = way
		ev := protocol.EndEvent{Kind: protocol.EndUnknown}
		if resp := e.request(e.did.Request); resp != nil {
			ev = protocol.EndEvent{Kind: protocol.EndReplied, Reply: resp}
		}
		e.step(ev)
		return
	}
	switch what {
	case "refused":
		e.step(protocol.EndEvent{Kind: protocol.EndReplied, Reply: &pb.TxnResponse{}})
	case "arrives late":
		e.arrive()
	case "deleted":
		e.remove(layout.Own(e.Mode.Keys().Claim))
	case "taken":
		e.remove(layout.Own(e.Mode.Keys().Claim))
		e.has("o", e.c.Mode)
	case "epoch":
		e.put(layout.Epoch(), "1", 0)
	case "record deleted":
		e.remove(layout.Own("k"))
	case "/x":
		e.put("/x", "done", 0)
	case "w", "v", "u":
		e.waits(what, e.c.Mode)
	case "w leaves", "v leaves":
		e.End(int64(what[0]))
	default:
		e.tb.Fatalf("%q does not happen", what)
	}
}

func (e *end) step(ev protocol.EndEvent) {
	e.did = e.Step(ev)
	e.story = append(e.story, told(e.did))
}

// told describes an action.
func told(a protocol.EndAction) string {
	text := map[protocol.EndActionKind]string{
		protocol.EndSend: "send", protocol.EndRead: "read", protocol.EndPause: "pause", protocol.EndAsk: "ask",
		protocol.EndGiven: "GIVEN", protocol.EndReleased: "RELEASED", protocol.EndLost: "LOST",
		protocol.EndStays: "STAYS", protocol.EndUnsettled: "UNSETTLED",
	}[a.Kind]
	if a.To != "" {
		text += " to " + a.To
	}
	switch {
	case a.Kind == protocol.EndLost && a.State == protocol.Kept:
		text += " with its session"
	case a.Kind == protocol.EndLost:
		text += " " + stateName(a.State)
	}
	for what, is := range map[string]bool{
		" unsure": a.Unsure, " before": a.Away, " the last": a.Emptied && !a.Remains, " record left": a.Remains,
	} {
		if is {
			text += what
		}
	}
	return text + [...]string{"", "-", "+"}[a.Locals] // what becomes of local waiters
}

// endCase is what happens to an ending, and after "|" what its driver is to do.
type endCase struct {
	mode  func() protocol.Mode
	with  func(e *end)
	story string
}

func (tt endCase) run(t *testing.T) {
	t.Helper()
	mode := exclusive()
	if tt.mode != nil {
		mode = tt.mode()
	}
	m := newModel(t)
	e := newEnd(m, m.has("c", mode))
	if tt.with != nil {
		tt.with(e)
	}
	happens, want, _ := strings.Cut(tt.story, " | ")
	for _, what := range strings.Split(happens, ", ") {
		if what == "begins" && e.Line.Known && !e.Line.More {
			e.Line = m.readLine(e.Release).Line
		}
		e.hap(what)
	}
	if got := strings.Join(e.story, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// local has a caller of the same client wait that came before the revision.
func local(arrival int64) func(e *end) {
	return func(e *end) {
		e.Local, e.Arrival = &e.model.caller("l", exclusive(), noEpoch).Try, arrival
		e.Local.Lease = e.c.Lease
	}
}

func with(ops protocol.EndOps) func(e *end) { return func(e *end) { e.Ops = &ops } }

func knows(e *end)   { e.Line = protocol.Line{Known: true} } // as it is when the ending begins
func unread(e *end)  { e.Line = protocol.Unread }
func prefers(e *end) { e.Prefers, e.Line = true, protocol.Line{Known: true} }
func frees(e *end)   { e.Frees = true }
func drops(e *end)   { e.Drops = true }
func alone(e *end)   { e.Alone = true }
func has(e *end)     { e.put("/x", "there", 0) }

func both(a, b func(e *end)) func(e *end) { return func(e *end) { a(e); b(e) } }

// Each event in each state has the action that the table of Ending names.
func TestEnding(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]endCase{
		// new and learning
		"no line is known":   {story: "begins, arrives | send, RELEASED"},
		"a place is known":   {with: knows, story: "w, begins, arrives | send to w, RELEASED to w"},
		"a line is probable": {with: unread, story: "w, begins, arrives, arrives | read, send to w, RELEASED to w"},
		"the line cannot be read": {
			with: unread,
			story: "w, begins, passing, arrives, arrives | " +
				"read, send, send to w, RELEASED to w",
		},
		"the line may not be read": {with: unread, story: "begins, final, arrives | read, send, RELEASED"},
		"gone while the line is read": {
			with: unread,
			story: "begins, deleted, arrives, arrives | " +
				"read, send, LOST deleted",
		},
		"it prefers": {
			with:  prefers,
			story: "w, begins, arrives, arrives | read, send to w, RELEASED to w",
		},
		"whoever waits is not handed it": {with: frees, story: "w, begins, arrives | send, RELEASED"},
		"left to the background":         {story: "left, resumes, arrives | UNSETTLED, send, RELEASED"},
		"a slot": {
			mode: slots, with: unread,
			story: "w, begins, arrives, arrives | " +
				"read, send to w, RELEASED to w",
		},
		"the only reader":          {mode: shared, with: alone, story: "begins, arrives | send, RELEASED the last"},
		"the only reader, unaware": {mode: shared, story: "begins, arrives | send, RELEASED record left"},

		// leaving
		"refused by a line": {
			story: "w, begins, arrives, arrives, arrives | " +
				"send, read, send to w, RELEASED to w",
		},
		"refused, with the reason": {
			with: knows,
			story: "w, begins, w leaves, arrives, arrives | " +
				"send to w, send, RELEASED",
		},
		"no reply": {
			story: "begins, loses reply, resumes, arrives, arrives | " +
				"send, pause+, send, read, RELEASED before",
		},
		"did not arrive":      {story: "begins, loses, resumes, arrives | send, pause+, send, RELEASED"},
		"passing":             {story: "begins, passing, resumes, arrives | send, pause, send, RELEASED"},
		"final":               {story: "begins, final | send, UNSETTLED"},
		"no lease, to nobody": {story: "begins, no lease | send, UNSETTLED"},
		"final, to a waiter":  {with: knows, story: "w, begins, final, arrives | send to w, send, RELEASED"},
		"the waiter's lease is gone": {
			with: knows,
			story: "w, begins, no lease, arrives | " +
				"send to w, send, RELEASED",
		},
		"time up":           {story: "begins, passing, time up | send, pause, UNSETTLED"},
		"time up, no reply": {story: "begins, loses, time up | send, pause+, UNSETTLED"},
		"arrives late": {
			with: knows,
			story: "w, begins, comes late, resumes, arrives late, arrives | " +
				"send to w, pause+, send to w, RELEASED before",
		},
		"to another meanwhile": {
			with: knows,
			story: "w, v, begins, comes late, w leaves, resumes, arrives, arrives | " +
				"send to w, pause+, send to w, send to v, RELEASED to v",
		},

		// reading
		"deleted":       {story: "begins, deleted, arrives, arrives | send, read, LOST deleted"},
		"taken":         {story: "begins, taken, arrives, arrives | send, read, LOST replaced"},
		"another epoch": {with: knows, story: "w, begins, epoch, arrives, arrives | send to w, send, RELEASED"},
		"its record is gone": {
			mode: slots, with: knows,
			story: "w, begins, record deleted, arrives, arrives | " +
				"send to w, send, RELEASED",
		},
		"refused, and yet kept": {
			with: frees,
			story: "begins, refused, arrives, resumes, arrives | " +
				"send, read, pause, send, RELEASED",
		},
		"the reason passes": {
			story: "w, begins, arrives, passing, resumes, arrives, arrives, arrives | " +
				"send, read, pause, send, read, send to w, RELEASED to w",
		},
		"the reason cannot be had": {story: "w, begins, arrives, final | send, read, UNSETTLED"},
		"no time for the reason": {
			story: "w, begins, arrives, passing, time up | " +
				"send, read, pause, UNSETTLED",
		},

		// dropping
		"dropped":        {with: drops, story: "w, begins, arrives | send, RELEASED"},
		"dropped, epoch": {with: drops, story: "epoch, begins, arrives | send, RELEASED"},
		"dropped, lost":  {with: drops, story: "deleted, begins, arrives | send, LOST deleted"},
		"dropped, no reply": {
			with: drops,
			story: "begins, loses reply, resumes, arrives | " +
				"send, UNSETTLED, send, RELEASED before",
		},
		"dropped, not carried": {
			with: drops,
			story: "begins, final, resumes, arrives | " +
				"send, UNSETTLED, send, RELEASED",
		},

		// unsettled, settling, deleting, undoing
		"deleted later": {
			story: "begins, loses, time up, resumes, passing, resumes, loses, resumes, final, resumes, arrives | " +
				"send, pause+, UNSETTLED, send, UNSETTLED, send, UNSETTLED, send, UNSETTLED, send, RELEASED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.run(t)
		})
	}
}

// A caller of the same client is given the key if it came first, and is not left with half of it.
func TestEndingWithin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]endCase{
		// giving
		"to a local waiter": {with: local(1), story: "begins, arrives | send to l, GIVEN to l"},
		"the line read first": {
			with: both(local(1), unread),
			story: "w, begins, arrives, arrives | " +
				"read, send to l, GIVEN to l",
		},
		"another came before": {
			with: both(local(1<<40), knows),
			story: "w, begins, arrives | " +
				"send to w-, RELEASED to w",
		},
		"who came first is not known": {
			with: both(local(0), knows),
			story: "w, begins, arrives | " +
				"send to w-, RELEASED to w",
		},
		"refused, another before": {
			with: local(0),
			story: "w, begins, arrives, arrives | " +
				"send to l, send to w-, RELEASED to w",
		},
		"refused, and came before": {
			with: local(1),
			story: "w, begins, arrives, arrives | " +
				"send to l, send to l, GIVEN to l",
		},
		"given, no reply": {
			with: local(1),
			story: "begins, loses reply, resumes, arrives | " +
				"send to l, pause, send to l, GIVEN to l",
		},
		"not given, no reply": {
			with: local(0),
			story: "begins, loses, w, resumes, arrives, arrives | " +
				"send to l, pause, send to l, send to l, GIVEN to l",
		},
		"giving passes": {
			with: local(1),
			story: "begins, passing, resumes, arrives | " +
				"send to l, pause, send to l, GIVEN to l",
		},
		"no space to give": {with: local(1), story: "begins, final, arrives | send to l, send+, RELEASED"},
		"no space, sent": {
			with: local(1),
			story: "begins, loses, resumes, final, resumes, arrives | " +
				"send to l, pause, send to l, pause, send to l, GIVEN to l",
		},
		"giving, own lease gone": {with: local(1), story: "begins, no lease, arrives | send to l, send+, RELEASED"},
		"giving, deleted": {
			with: local(1),
			story: "begins, deleted, arrives, arrives, arrives | " +
				"send to l, send+, read, LOST deleted",
		},
		"giving, another epoch": {
			with: local(1),
			story: "begins, epoch, arrives, arrives | " +
				"send to l, send+, RELEASED",
		},
		"giving, time up": {
			with: local(1),
			story: "begins, passing, time up, passing, time up | " +
				"send to l, pause, send+, pause, UNSETTLED",
		},
		"given, and then taken": {
			with: local(1),
			story: "begins, loses reply, deleted, resumes, arrives, arrives, arrives | " +
				"send to l, pause, send to l, send+, read, RELEASED before",
		},

		// unsettled, settling, deleting, undoing
		"given, and undone": {
			with: local(1),
			story: "begins, loses reply, time up, resumes, arrives, arrives | " +
				"send to l, pause, UNSETTLED-, send, send, RELEASED before",
		},
		"given late, and undone": {
			with: local(1),
			story: "begins, comes late, time up, resumes, arrives, arrives late, arrives | " +
				"send to l, pause, UNSETTLED-, send, send, RELEASED",
		},
		"undone later": {
			with: local(1),
			story: "begins, loses reply, time up, resumes, arrives, loses, resumes, arrives, arrives | " +
				"send to l, pause, UNSETTLED-, send, send, UNSETTLED, send, send, RELEASED before",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.run(t)
		})
	}
}
