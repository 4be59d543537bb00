package protocol_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// orders is an ending among events in a random order, and what the model knows of it.
type orders struct {
	*end
	*rand.Rand

	ops     *protocol.EndOps
	own     protocol.Held // as it was
	local   string        // the value of the local waiter's claim, "" if there is none
	called  bool          // its call has returned: the rest is in the background
	ended   int           // how many requests have ended the claim
	done    int           // how often the operations were carried out
	unknown int           // how many requests have had no reply
	copies  int           // how many were carried out twice
	alike   bool          // another has put what the operations put
}

// An ending comes to its end whatever happens in whatever order, and says what is true of it.
func TestEndingInAnyOrder(t *testing.T) {
	t.Parallel()
	kinds := make(map[protocol.EndActionKind]int)
	for seed := range uint64(3000) {
		o := newOrders(t, rand.New(rand.NewPCG(seed, 38)))
		o.run(kinds)
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, strings.Join(o.story, ", "))
		}
	}
	for kind := protocol.EndGiven; kind <= protocol.EndUnsettled; kind++ {
		if kinds[kind] < 50 {
			t.Errorf("only %d endings came to %d", kinds[kind], kind)
		}
	}
}

func newOrders(t *testing.T, r *rand.Rand) *orders {
	t.Helper()
	m := newModel(t)
	mode := []func() protocol.Mode{exclusive, exclusive, slots, shared}[r.IntN(4)]()
	o := &orders{end: newEnd(m, m.has("c", mode)), Rand: r}
	o.own = *o.Held
	m.put("/x", "there", 0)
	m.put(layout.Note(o.Key), "n", o.Lease)
	o.Noted = true
	switch r.IntN(6) {
	case 0:
		o.ops = &puts
	case 1:
		o.ops = &deletes
	case 2:
		o.ops = &unseen
	case 3:
		if !mode.Keys().Record {
			local(int64(r.IntN(300)))(o.end)
			o.local = o.Local.Value
		}
	case 4:
		o.Drops = r.IntN(2) == 0
	}
	o.Ops = o.ops
	o.Frees, o.Prefers, o.Alone = r.IntN(8) == 0 && o.local == "", r.IntN(8) == 0, r.IntN(2) == 0
	for i := range r.IntN(3) {
		o.joins(string(rune('w' - i)))
	}
	switch r.IntN(3) {
	case 0:
		o.Line = protocol.Unread
	case 1:
		o.Line = m.readLine(o.Release).Line
	}
	return o
}

// joins puts a place in line.
func (o *orders) joins(id string) {
	c := o.model.caller(id, o.c.Mode, noEpoch)
	o.put(c.PlaceKey(), c.PlaceValue, c.Lease)
}

func (o *orders) held() bool {
	resp, _ := o.Range(txn.Get([]byte(layout.Own(o.own.Key))).GetRequestRange())
	return o.own.OfKey(resp.Kvs) == protocol.Kept
}

func (o *orders) guarded() bool { return o.Do(&pb.TxnRequest{Compare: o.own.Guard()}).Succeeded }

// watching counts what a request of the ending does.
func (o *orders) watching(f func()) {
	held, x := o.held(), o.Get("/x")
	f()
	if held && !o.held() {
		o.ended++
	}
	if o.Get("/x") != x {
		o.done++
	}
}

// interferes makes something happen that is none of the ending's doing.
func (o *orders) interferes() {
	own := layout.Own(o.own.Key)
	switch o.IntN(10) {
	case 0, 1:
		o.joins(string(rune('p' + o.IntN(8))))
	case 2, 3:
		o.model.End(int64('p' + o.IntN(8)))
	case 4:
		o.watching(o.arrive)
	case 5:
		o.put(layout.Epoch(), fmt.Sprint(o.Revision()), 0)
	case 6:
		o.remove(own)
	case 7:
		o.put(own, "another's", 'o')
	case 8:
		if o.ops != &deletes { // else only the operations delete it
			o.put("/x", "done", 0)
			o.alike = true
		}
	case 9:
		if o.own.Mode.Keys().Record {
			o.remove(layout.Own("k"))
		}
	}
}

// next has one action done, in the way that chance decides while wild.
func (o *orders) next(wild bool) {
	ev := protocol.EndEvent{}
	switch o.did.Kind {
	case protocol.EndSend, protocol.EndRead:
		ev = o.sends(wild)
	case protocol.EndPause:
		if ev.Kind = protocol.EndResumes; o.IntN(4) == 0 {
			ev.Kind = protocol.EndTimeUp
		}
	case protocol.EndAsk:
		if ev.Kind = protocol.EndSessionLives; o.IntN(2) == 0 {
			ev.Kind = protocol.EndSessionGone
			o.model.End(o.own.Lease)
		}
	case protocol.EndUnsettled:
		ev.Kind = protocol.EndResumes
	case protocol.EndGiven, protocol.EndReleased, protocol.EndLost, protocol.EndStays:
		o.tb.Fatalf("nothing follows %s", told(o.did))
	}
	o.step(ev)
}

func (o *orders) sends(wild bool) protocol.EndEvent {
	failures := []protocol.EndEventKind{
		protocol.EndPassing, protocol.EndPassing, protocol.EndNoLease, protocol.EndFinal, protocol.EndCompacted,
	}
	if wild && o.IntN(4) == 0 {
		return protocol.EndEvent{Kind: failures[o.IntN(len(failures))]}
	}
	if wild && o.did.Kind == protocol.EndSend && o.IntN(3) == 0 {
		o.fate = []fate{loses, losesReply, comesLate}[o.IntN(3)]
	} else if wild && o.did.Kind == protocol.EndSend && (o.ops == &puts || o.ops == &deletes) && o.IntN(6) == 0 {
		o.fate = comesTwice
		o.copies++
	}
	var resp *pb.TxnResponse
	o.watching(func() { resp = o.request(o.did.Request) })
	if resp == nil {
		o.unknown++
		return protocol.EndEvent{Kind: protocol.EndUnknown}
	}
	return protocol.EndEvent{Kind: protocol.EndReplied, Reply: resp}
}

func (o *orders) run(kinds map[protocol.EndActionKind]int) {
	o.step(protocol.EndEvent{Kind: protocol.EndBegins})
	for i := 0; !o.did.Kind.Ends(); i++ {
		if i > 200 {
			o.tb.Errorf("it does not end")
			return
		}
		wild := i < 20
		if wild && o.IntN(4) == 0 {
			o.interferes()
		}
		o.next(wild)
	}
	kinds[o.did.Kind]++
	o.judge()
	for i := 0; o.did.Kind == protocol.EndUnsettled && !o.tb.Failed(); i++ {
		for o.next(i < 5); o.did.Kind == protocol.EndSend; {
			o.next(i < 5)
		}
		if i > 10 {
			o.tb.Errorf("it is not settled")
		}
		if o.did.Kind != protocol.EndUnsettled {
			o.ops, o.called = nil, true // of which it says no more
			o.judge()
		}
	}
}

// judge compares what the ending says with what has happened.
func (o *orders) judge() {
	a, says := o.did, told(o.did)
	check := func(ok bool, what string) {
		if !ok {
			o.tb.Errorf("%s, but %s (ended by %d requests, %d unknown, %d copied, done %d times)", says, what, o.ended, o.unknown, o.copies, o.done)
		}
	}
	check(o.ended <= 1 && o.done <= 1, "it ended more than once")
	own := o.KV(layout.Own(o.own.Key))
	switch a.Kind {
	case protocol.EndGiven:
		check(own != nil && string(own.Value) == o.local && own.Lease == o.own.Lease, "another has the key")
		check(own.ModRevision == a.Rev, "not since then")
		check(o.ended == 1, "nothing has given it")
	case protocol.EndReleased:
		check(!o.held(), "the claim is there")
		check(o.ended == 1 || a.Away && (o.unknown > 0 || o.called), "no request has done that")
		check(o.ops == nil || o.ended == 1 && o.done == 1, "its operations were not carried out")
		check(a.Away || o.KV(layout.Note(o.own.Key)) == nil, "the note is there")
		check(own == nil || string(own.Value) != o.local, "the local waiter has it")
	case protocol.EndLost:
		check(!o.held() || o.ops != nil && !o.guarded() || o.Drops && !o.guarded(), "the claim is kept")
		check(a.Unsure || o.unknown == 0, "is it known what the requests did?")
		check(!a.Unsure || o.unknown > 0 || o.copies > 0 || o.alike, "it is known what the requests did")
		check(!a.Unsure || o.ops != nil, "it was to be given up")
		check(a.Unsure || o.ended == 0 && o.done == 0, "it was given up")
	case protocol.EndStays:
		check((o.ended == 0 && o.done == 0 || o.copies > 0) && o.unknown == 0, "a request may have been carried out")
	case protocol.EndUnsettled:
		check(o.ops == nil || o.unknown > 0 || o.copies > 0 || o.alike, "nothing is unknown")
		return
	case protocol.EndSend, protocol.EndRead, protocol.EndPause, protocol.EndAsk:
	}
	before := o.ended + o.done
	o.watching(o.arrive)
	check(o.ended+o.done == before, "a late request was carried out")
}

// A copy of an ending is independent of it.
func TestEndingIsAValue(t *testing.T) {
	t.Parallel()
	m := newModel(t)
	e := newEnd(m, m.has("c", slots()))
	e.Line = protocol.Unread
	e.hap("begins")
	mode := e.Mode
	copied := *e.Ending
	m.put(layout.Own("k"), protocol.SlotsRecord(2), 0)
	e.hap("arrives")
	if copied.Mode != mode || copied.String() != "learning" || e.String() != "leaving" || e.Mode == mode {
		t.Errorf("the copy is %v with %v, the ending %v with %v", &copied, copied.Mode, e.Ending, e.Mode)
	}
}

// A hand-over that is refused again and again frees the key at last. Of a key with slots, it lets
// others go first for a while.
func TestEndingGoesOnToHandOver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode   func() protocol.Mode
		timeUp bool
		last   []string
	}{
		{exclusive, false, []string{"send"}},
		{slots, false, []string{"pause", "send to w", "send"}},
		{slots, true, []string{"pause", "send"}},
	} {
		m := newModel(t)
		e := newEnd(m, m.has("c", tt.mode()))
		ids := []string{"w", "v"}
		place := func(i int) string { return layout.Place(e.Mode.Keys().Line, ids[i%2]) }
		join := func(i int) { m.put(place(i), m.caller(ids[i%2], e.Mode, noEpoch).PlaceValue, int64(ids[i%2][0])) }
		join(0)
		e.Line = m.readLine(e.Release).Line
		e.hap("begins")
		for i := 0; e.did.To != "" || e.did.Kind == protocol.EndPause; {
			switch {
			case e.did.Kind == protocol.EndPause && tt.timeUp:
				e.hap("time up")
			case e.did.Kind == protocol.EndPause:
				e.hap("resumes")
			default:
				m.remove(place(i))
				i++
				join(i)
				e.hap("arrives")
			}
		}
		want := slices.Concat(slices.Repeat([]string{"send to w", "send to v"}, 5), tt.last)
		if !slices.Equal(e.story, want) {
			t.Errorf("got  %q\nwant %q", e.story, want)
		}
		if e.hap("arrives"); e.did.Kind != protocol.EndReleased {
			t.Errorf("at last: %s", told(e.did))
		}
	}
}

// An event that cannot follow the last action is a fault of the driver.
func TestEndingRefusesOtherEvents(t *testing.T) {
	t.Parallel()
	failures := []string{"no reply", "passing", "no lease", "compacted", "final"}
	for state, tt := range map[string]struct {
		with  func(e *end)
		story string
		may   []string
	}{
		"new":       {knows, "w", []string{"begins", "left"}},
		"learning":  {unread, "begins", failures},
		"giving":    {local(1), "begins", failures},
		"leaving":   {knows, "begins", failures},
		"reading":   {frees, "begins, refused", failures},
		"proving":   {with(puts), "begins, loses reply, resumes, arrives, arrives", failures},
		"asking":    {with(puts), "begins, no lease", []string{"session gone", "session lives"}},
		"pausing":   {knows, "begins, passing", []string{"resumes", "time up"}},
		"dropping":  {drops, "begins", failures},
		"unsettled": {knows, "left", []string{"resumes"}},
		"settling":  {with(puts), "left, resumes", failures},
		"deleting":  {knows, "left, resumes", failures},
		"undoing":   {local(1), "begins, loses reply, time up, resumes, arrives", failures},
		"over":      {knows, "begins, arrives", nil},
	} {
		m := newModel(t)
		e := newEnd(m, m.has("c", exclusive()))
		tt.with(e)
		for _, what := range strings.Split(tt.story, ", ") {
			e.hap(what)
		}
		if e.String() != state {
			t.Errorf("it is %v, not %s", e, state)
		}
		for what, kind := range outcomes {
			if got, want := panics(*e.Ending, kind), !slices.Contains(tt.may, what); got != want {
				t.Errorf("%s, %s: it panics: %v", state, what, got)
			}
		}
	}
}

func panics(e protocol.Ending, kind protocol.EndEventKind) (panics bool) {
	defer func() { panics = recover() != nil }()
	e.Step(protocol.EndEvent{Kind: kind})
	return false
}
