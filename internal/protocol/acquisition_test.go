package protocol_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

var errTest = errors.New("it failed")

// stepper is what steps through an attempt: Acquisition and AllOrNone.
type stepper interface {
	Step(ev protocol.Event) protocol.Action
	Phase() protocol.Phase
}

// play is an acquisition that a test drives event by event on a model.
type play struct {
	*model
	acq  stepper
	try  *protocol.Acquisition
	last protocol.Action // whose request, position or end the next events are about
	said []string
}

func (m *model) plays(c *caller) *play {
	a := &protocol.Acquisition{Try: c.Try}
	return &play{model: m, acq: a, try: a}
}

var phaseNames = map[protocol.Phase]string{
	protocol.Taking: "take", protocol.Looking: "look", protocol.Joining: "join", protocol.Advancing: "advance",
	protocol.Confirming: "confirm", protocol.Clearing: "clear", protocol.Leaving: "leave", protocol.Doubting: "doubt", protocol.Resting: "rest",
}

var endNames = map[protocol.Answer]string{
	protocol.AnswerWon: "won", protocol.AnswerHeld: "held", protocol.AnswerBehind: "behind", protocol.AnswerUnmet: "unmet",
	protocol.AnswerAgain: "again", protocol.AnswerLater: "later", protocol.AnswerLostPlace: "lost place",
	protocol.AnswerStopped: "stopped", protocol.AnswerUnsettled: "unsettled", protocol.AnswerFailed: "failed",
}

// step reports an event, and notes the action in a few words.
func (p *play) step(ev protocol.Event) {
	act := p.acq.Step(ev)
	said := ""
	switch act.Do {
	case protocol.DoStay:
		if said = "stay"; act.Err != nil {
			said = "stay unread"
		}
	case protocol.DoSend, protocol.DoQuery:
		said = phaseNames[p.acq.Phase()]
	case protocol.DoLearn:
		said = "learn"
	case protocol.DoPrepare:
		said = "prepare"
	case protocol.DoPause:
		said = fmt.Sprint(phaseNames[p.acq.Phase()], " ", act.Pauses)
	case protocol.DoWait:
		said = "wait"
	case protocol.DoEnd:
		said = endNames[act.End]
	}
	for what, is := range map[string]bool{" undo": act.Undo, " news": act.News, " strays": len(act.Strays) > 0} {
		if is {
			said += what
		}
	}
	if act.Twice {
		said += " twice"
	}
	if act.Found != protocol.Kept {
		said += " found"
	}
	if act.Own != nil {
		h, _ := protocol.DecodeHolder(act.Own.Value)
		said += strings.TrimRight(" by "+h.Owner+h.Kind, " ")
	}
	if act.Sharers > 0 {
		said += fmt.Sprint(" of ", act.Sharers)
	}
	p.said = append(p.said, said)
	if act.Do != protocol.DoStay {
		p.last = act
	}
}

var fates = map[string]fate{"reply": arrives, "lose": loses, "lose-reply": losesReply, "late": comesLate, "twice": comesTwice, "lose-both": losesBoth}

var classes = map[string]protocol.Class{
	"refused": protocol.Refused, "transient": protocol.Transient, "passing": protocol.Passing, "unknown": protocol.Unknown,
	"no-space": protocol.NoSpace, "session-gone": protocol.SessionGone, "lease-gone": protocol.LeaseGone, "barred": protocol.Barred,
}

var plain = map[string]protocol.Event{
	"take": {Kind: protocol.BeginTake}, "join": {Kind: protocol.BeginJoin}, "prepared": {Kind: protocol.Prepared},
	"resumed": {Kind: protocol.Resumed}, "woken": {Kind: protocol.Woken}, "shares": {Kind: protocol.Woken, Shares: true},
	"stray": {Kind: protocol.Replied}, "time-up": {Kind: protocol.TimeUp, Err: errTest}, "session-ended": {Kind: protocol.SessionEnded, Err: errTest},
}

// do makes the event of a name: an answer of the model to the last request, a failure of a class, or
// what else may happen. "#" begins a change that others make.
func (p *play) do(name string) {
	p.tb.Helper()
	own := layout.Own("k")
	if class, ok := classes[name]; ok {
		p.step(protocol.Event{Kind: protocol.Failed, Class: class, Err: errTest})
		return
	}
	if ev, ok := plain[name]; ok {
		p.step(ev)
		return
	}
	if f, ok := fates[name]; ok {
		if p.last.Request.In == nil {
			p.tb.Fatalf("no request: %s", strings.Join(p.said, ", "))
		}
		p.fate = f
		if resp := p.request(p.last.Request); resp != nil {
			p.step(protocol.Event{Kind: protocol.Replied, Reply: resp})
		} else {
			p.step(protocol.Event{Kind: protocol.Failed, Class: protocol.Unknown, Err: txn.ErrUnknown})
		}
		return
	}
	switch name {
	case "learnt":
		p.step(protocol.Event{Kind: protocol.Learnt, Epoch: p.epoch()})
	case "heard-gone":
		p.step(protocol.Event{Kind: protocol.Heard, KV: &mvccpb.KeyValue{Key: []byte(own)}, Deleted: true})
	case "heard-other":
		p.step(protocol.Event{Kind: protocol.Heard, KV: &mvccpb.KeyValue{Key: []byte(own), Value: []byte("{}"), ModRevision: 7}})
	case "heard-own":
		p.put(own, p.try.Value, p.try.Lease)
		p.step(protocol.Event{Kind: protocol.Heard, KV: p.KV(own)})
	case "notice", "notice-unread", "notice-of-other":
		name, value := layout.Notice("i", p.try.ID), map[string]string{"notice": `{"v":1,"trace":"t","more":true}`, "notice-unread": "-"}[name]
		if value == "" {
			name = layout.Notice("i", "x")
		}
		p.put(name, value, p.try.Lease)
		p.step(protocol.Event{Kind: protocol.Noticed, KV: p.KV(name)})
	case "opened":
		kv := p.KV(own)
		p.step(protocol.Event{Kind: protocol.Opened, Over: &protocol.Over{
			Rev: kv.ModRevision, Guard: []*pb.Compare{txn.ModifiedAt(kv.Key, kv.ModRevision)}, Notify: txn.Put([]byte("/n"), "n", kv.Lease),
		}})
	case "#free":
		p.End('o')
	case "#other":
		p.End('o')
		p.has("x", exclusive())
	case "#readers":
		p.End('o')
		p.has("x", shared())
	case "#free-k":
		p.remove(own)
	case "#given":
		p.remove(p.try.PlaceKey())
		p.put(own, p.try.Value, p.try.Lease)
	case "#out":
		p.remove(p.try.PlaceKey())
	case "#moved":
		value := p.KV(p.try.PlaceKey()).Value
		p.remove(p.try.PlaceKey())
		p.put(p.try.PlaceKey(), string(value), p.try.Lease)
	case "#epoch":
		p.put(layout.Epoch(), "1", 0)
	case "#line":
		p.put(layout.Place("k", "x"), protocol.Holder{Claim: "x"}.Encode(), 'x')
	case "#beside":
		p.put("/b", "x", 0)
	case "#arrive":
		p.arrive()
	default:
		p.tb.Fatalf("no event %q", name)
	}
}

// A try that takes the key from a claim of its own client finds out what became of that claim.
func TestAcquisitionSupersedes(t *testing.T) {
	t.Parallel()
	for script, tt := range map[string]struct {
		unmet bool
		want  string
	}{
		"take reply":                     {want: "take, won"},
		"take reply # unmet":             {unmet: true, want: "take, look"},
		"take reply reply learnt":        {unmet: true, want: "take, look, learn, unmet"},
		"#free take reply":               {want: "take, again found"},
		"#other take reply":              {want: "take, held found by x"},
		"#readers take reply reply":      {want: "take, clear found, held by shared of 1"},
		"#epoch take reply reply":        {want: "take, look, held found by o"},
		"take #epoch reply #free reply":  {want: "take, look, learn found"},
		"take reply #other reply learnt": {unmet: true, want: "take, look, learn, again"},
		"join reply":                     {want: "join, won"},
		"join reply # unmet":             {unmet: true, want: "join, wait"},
		"join reply #free woken reply":   {unmet: true, want: "join, wait, advance, learn"},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			o := m.has("o", exclusive())
			held := protocol.NewHeld(&o.Try, noEpoch.Fence(m.Revision()))
			p := m.plays(m.caller("c", exclusive(), noEpoch))
			p.try.Supersede(&held)
			if tt.unmet {
				p.try.Ask.If = []*pb.Compare{txn.CreatedAfter([]byte("/x"), 0)}
			}
			p.plays(script, tt.want)
		})
	}
}

// A try that takes the key over from a released claim of its own client passes no caller in line, and finds out what became
// of that claim.
func TestAcquisitionSucceeds(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"take reply":                          "take, won",
		"take twice":                          "take, won",
		"take lose-reply reply":               "take, confirm, won",
		"take late reply #arrive":             "take, confirm, again",
		"#line take reply reply learnt":       "take, look, learn, again",
		"#free take reply":                    "take, again found",
		"#free #line take reply":              "take, again found",
		"#other take reply":                   "take, held found by x",
		"#epoch take reply reply":             "take, look, held found by o",
		"#line take reply #free reply learnt": "take, look, learn, behind",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			o := m.has("o", exclusive())
			held := protocol.NewHeld(&o.Try, noEpoch.Fence(m.Revision()))
			p := m.plays(m.caller("c", exclusive(), noEpoch))
			p.try.Succeed(&held)
			p.plays(script, want)
		})
	}
}

// acts reports the events of a script.
func (p *play) acts(script string) {
	p.tb.Helper()
	events, _, _ := strings.Cut(script, " # ")
	for _, name := range strings.Fields(events) {
		p.do(name)
	}
}

// plays reports the events of a script, and checks what was to be done after each.
func (p *play) plays(script, want string) {
	p.tb.Helper()
	p.acts(script)
	if got := strings.Join(p.said, ", "); got != want {
		p.tb.Errorf("got  %s\nwant %s", got, want)
	}
}

// The way to a key that is free allocates nothing beyond its request.
func TestAcquisitionAllocatesNothing(t *testing.T) {
	m := newModel(t)
	c := m.caller("c", exclusive(), noEpoch)
	reply := &pb.TxnResponse{Succeeded: true, Header: &pb.ResponseHeader{Revision: 7}}
	var a protocol.Acquisition
	step := testing.AllocsPerRun(100, func() {
		a = protocol.Acquisition{Try: c.Try}
		a.Step(protocol.Event{Kind: protocol.BeginTake})
		if won := a.Step(protocol.Event{Kind: protocol.Replied, Reply: reply}); won.End != protocol.AnswerWon || won.Rev != 7 {
			t.Errorf("%+v", won)
		}
	})
	bare := testing.AllocsPerRun(100, func() {
		a.Try = c.Try
		protocol.Take{Try: &a.Try}.Build()
		protocol.Take{Try: &a.Try}.Judge(reply)
	})
	if step > bare {
		t.Errorf("%v allocations, and %v without the steps", step, bare)
	}
}

// Each event leads from each phase to one action.
func TestAcquisition(t *testing.T) {
	t.Parallel()
	held := func(m *model) { m.has("o", exclusive()) }
	readers := func(m *model) { m.has("o", shared()) }
	unmet := func(a *protocol.Acquisition) { a.Ask.If = []*pb.Compare{txn.CreatedAfter([]byte("/x"), 0)} }
	then := func(a *protocol.Acquisition) { a.Ask.Then = []*pb.RequestOp{txn.Put([]byte("/y"), "y", int64(0))} }
	beside := func(a *protocol.Acquisition) { a.Beside = &protocol.Beside{Key: "/b", Value: "b"} }
	for script, tt := range map[string]struct {
		before func(m *model)
		mode   func() protocol.Mode
		with   func(a *protocol.Acquisition)
		want   string
	}{
		// The key is free, or not.
		"take reply":                                {want: "take, won"},
		"take twice":                                {want: "take, won"},
		"take reply # held":                         {before: held, want: "take, held by o"},
		"take reply # a line":                       {before: func(m *model) { m.waits("w", exclusive()) }, want: "take, look"},
		"take reply reply learnt # a line":          {before: func(m *model) { m.waits("w", exclusive()) }, want: "take, look, learn, behind"},
		"take reply reply learnt # unmet":           {with: unmet, want: "take, look, learn, unmet"},
		"take #epoch reply reply learnt":            {want: "take, look, learn, again"},
		"take #beside reply":                        {with: beside, want: "take, again news"},
		"take reply refused # an old reply":         {with: unmet, want: "take, look, failed"},
		"take reply passing":                        {with: unmet, want: "take, look, again"},
		"take reply reply refused":                  {with: unmet, want: "take, look, learn, failed"},
		"take reply time-up":                        {with: unmet, want: "take, look, stopped"},
		"take reply session-ended":                  {with: unmet, want: "take, look, later"},
		"take reply reply time-up":                  {with: unmet, want: "take, look, learn, stopped"},
		"take reply #given reply":                   {with: unmet, want: "take, look, won"},
		"take reply # readers":                      {before: readers, want: "take, clear"},
		"take reply reply # readers":                {before: readers, want: "take, clear, held by shared of 1"},
		"take reply #free reply":                    {before: readers, want: "take, clear, again"},
		"take reply passing # readers":              {before: readers, want: "take, clear, again"},
		"take reply refused # readers":              {before: readers, want: "take, clear, failed"},
		"take reply learnt # no record known":       {mode: shared, before: readers, want: "take, learn, again"},
		"take reply learnt # slots, held as whole":  {mode: slots, before: held, want: "take, learn, held by o"},
		"take reply learnt # another number":        {mode: slots, before: func(m *model) { m.has("o", protocol.NewSlots(layout, "k", 2, 0)) }, want: "take, learn, failed"},
		"take refused":                              {want: "take, failed"},
		"take transient":                            {want: "take, later"},
		"take session-gone":                         {want: "take, later"},
		"take lease-gone":                           {with: beside, want: "take, later"},
		"take time-up":                              {want: "take, unsettled undo"},
		"take session-ended":                        {want: "take, unsettled undo"},
		"take reply take woken time-up # has ended": {want: "take, won, stay, stay, stay"},
		"take woken heard-gone notice":              {want: "take, stay, stay, stay"},
		"time-up":                                   {want: "stopped"},
		"session-ended":                             {want: "later"},

		// The outcome is unknown.
		"take lose reply":                     {want: "take, confirm, again"},
		"take lose-reply reply":               {want: "take, confirm, won"},
		"take late reply #arrive":             {want: "take, confirm, again"},
		"take lose reply # beside":            {with: beside, want: "take, confirm, again undo"},
		"take lose lose resumed lose":         {want: "take, confirm, doubt 0, confirm, doubt 1"},
		"take lose-reply lose resumed reply":  {want: "take, confirm, doubt 0, confirm, won"},
		"take lose lose time-up":              {want: "take, confirm, doubt 0, unsettled undo"},
		"take lose lose session-ended":        {want: "take, confirm, doubt 0, unsettled undo"},
		"take lose time-up":                   {want: "take, confirm, unsettled undo"},
		"take lose transient":                 {want: "take, confirm, doubt 0"},
		"take lose refused":                   {want: "take, confirm, unsettled undo"},
		"take lose session-gone":              {want: "take, confirm, again"},
		"take lose session-gone # then":       {with: then, want: "take, confirm, unsettled undo"},
		"take no-space reply":                 {want: "take, confirm, failed"},
		"join lose reply":                     {want: "join, confirm, again"},
		"join lose-reply reply reply":         {want: "join, confirm, leave, won"},
		"join lose-both reply reply":          {want: "join, confirm, leave, won"},
		"join lose-reply reply reply # slots": {mode: slots, before: func(m *model) { m.has("o", slots()); m.End('o') }, want: "join, confirm, leave, won"},
		"join lose-reply reply # held":        {before: held, want: "join, confirm, again"},

		// In line.
		"join reply":                                            {want: "join, won"},
		"join twice reply":                                      {want: "join, leave, won"},
		"join twice lose":                                       {want: "join, leave, unsettled undo"},
		"join #epoch reply learnt":                              {want: "join, learn, again"},
		"join refused":                                          {want: "join, failed"},
		"join session-gone":                                     {want: "join, later"},
		"join time-up":                                          {want: "join, unsettled undo"},
		"join reply # another number":                           {mode: slots, before: func(m *model) { m.has("o", protocol.NewSlots(layout, "k", 2, 0)) }, want: "join, failed undo"},
		"join reply # held":                                     {before: held, want: "join, wait"},
		"join reply time-up # held":                             {before: held, want: "join, wait, stopped undo"},
		"join reply session-ended # held":                       {before: held, want: "join, wait, lost place undo"},
		"join reply notice":                                     {before: held, want: "join, wait, won"},
		"join reply notice-unread":                              {before: held, want: "join, wait, stay unread"},
		"join reply notice-of-other":                            {before: held, want: "join, wait, stay"},
		"join reply heard-own":                                  {before: held, want: "join, wait, won"},
		"join reply heard-other":                                {before: held, want: "join, wait, stay"},
		"join reply shares":                                     {before: held, want: "join, wait, again undo"},
		"join reply #free heard-gone reply":                     {before: held, want: "join, wait, advance, won"},
		"join reply woken reply learnt":                         {before: held, want: "join, wait, advance, learn, wait"},
		"join reply #given woken reply learnt":                  {before: held, want: "join, wait, advance, learn, won"},
		"join reply #out woken reply learnt":                    {before: held, want: "join, wait, advance, learn, lost place undo"},
		"join reply woken reply refused":                        {before: held, want: "join, wait, advance, learn, failed undo"},
		"join reply #moved woken reply learnt prepared":         {before: held, want: "join, wait, advance, learn, prepare, advance"},
		"join reply #moved woken reply learnt refused":          {before: held, want: "join, wait, advance, learn, prepare, failed undo"},
		"join reply #moved woken reply learnt passing resumed":  {before: held, want: "join, wait, advance, learn, prepare, rest 1, prepare"},
		"join reply #moved woken reply learnt time-up":          {before: held, want: "join, wait, advance, learn, prepare, stopped undo"},
		"join reply #free woken reply learnt # unmet":           {before: held, with: unmet, want: "join, wait, advance, learn, unmet undo"},
		"join reply #free #beside woken prepared reply learnt":  {before: held, with: beside, want: "join, wait, prepare, advance, learn, rest 0 news"},
		"join reply woken transient resumed":                    {before: held, want: "join, wait, advance, rest 0, advance"},
		"join reply woken transient resumed transient":          {before: held, want: "join, wait, advance, rest 0, advance, rest 1"},
		"join reply woken transient session-ended":              {before: held, want: "join, wait, advance, rest 0, lost place undo"},
		"join reply woken refused":                              {before: held, want: "join, wait, advance, failed undo"},
		"join reply woken session-gone":                         {before: held, want: "join, wait, advance, lost place undo"},
		"join reply woken prepared lease-gone":                  {before: held, with: beside, want: "join, wait, prepare, advance, rest 0"},
		"join reply woken time-up":                              {before: held, want: "join, wait, advance, unsettled undo"},
		"join reply woken lose reply":                           {before: held, want: "join, wait, advance, confirm, again undo"},
		"join reply #free woken lose-reply reply":               {before: held, want: "join, wait, advance, confirm, won"},
		"join reply woken no-space reply":                       {before: held, want: "join, wait, advance, confirm, failed undo"},
		"join reply opened reply":                               {before: held, want: "join, wait, advance, won"},
		"join reply opened barred resumed reply learnt":         {before: held, want: "join, wait, advance, rest 0, advance, learn, wait"},
		"join reply reply # readers":                            {before: readers, want: "join, clear, wait"},
		"join reply passing # readers":                          {before: readers, want: "join, clear, wait"},
		"join reply refused # readers":                          {before: readers, want: "join, clear, failed undo"},
		"join reply #free reply reply # readers":                {before: readers, want: "join, clear, advance, won"},
		"join reply time-up # readers":                          {before: readers, want: "join, clear, stopped undo"},
		"join reply #free woken prepared reply # a reader":      {mode: shared, before: held, want: "join, wait, prepare, advance, won"},
		"join reply #free woken prepared lose reply # a reader": {mode: shared, before: held, want: "join, wait, prepare, advance, confirm, again undo"},
		"join reply #free woken reply # a slot":                 {mode: slots, before: func(m *model) { m.has("o", slots()) }, want: "join, wait, advance, won"},
		"join reply stray prepared learnt resumed":              {before: held, want: "join, wait, stay, stay, stay, stay"},
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			m := newModel(t)
			if tt.before != nil {
				tt.before(m)
			}
			mode := exclusive
			if tt.mode != nil {
				mode = tt.mode
			}
			p := m.plays(m.caller("c", mode(), noEpoch))
			if tt.with != nil {
				tt.with(p.try)
			}
			p.plays(script, tt.want)
		})
	}
}
