package sched_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// report is a definition that is due at every full minute.
func report(name string) sched.Definition {
	return sched.Definition{Name: name, Schedule: "* * * * *", Kind: "report", Payload: json.RawMessage(`{"to": "acme"}`)}
}

// reports lets processes run the kind "report". It returns the payloads of the runs.
func (f *fleet) reports(takes time.Duration) (ran func() []string) {
	var payloads []string
	var mu sync.Mutex
	f.kinds = map[string]kindHandler{"report": func(ctx context.Context, _ sched.Tick, payload json.RawMessage) error {
		mu.Lock()
		payloads = append(payloads, string(payload))
		mu.Unlock()
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(payloads)
	}
}

// define stores a definition, and returns it with its version.
func (f *fleet) define(d sched.Definition) sched.Definition {
	f.Helper()
	version, err := f.console().Define(f.Context(), d)
	if err != nil {
		f.Fatal(err)
	}
	d.Version = version
	return d
}

// A job that any process defines runs, whichever process is the owner, and a change or a
// removal takes effect without a restart.
func TestDefine(t *testing.T) {
	for _, spread := range []bool{false, true} {
		t.Run(fmt.Sprintf("spread %t", spread), func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.cfg.Spread = spread
				payloads := f.reports(0)
				f.start(0)
				f.start(0)
				f.until("00:00:30")
				d := f.define(report("a"))
				f.until("00:00:30.100")
				if i := f.inspect("a"); i.Kind != "report" || i.Version != d.Version || i.Problem != "" || i.Next.Format(time.TimeOnly) != "00:01:00" {
					t.Errorf("%+v", i)
				}
				f.until("00:01:30")
				d.Payload = json.RawMessage(`7`)
				d = f.define(d)
				f.until("00:02:30")
				f.owner().stop() // the definition outlives its owner
				f.until("00:03:30")
				d.Schedule, d.Overdue = "TZ=Europe/Berlin */5 * * * *", time.Hour
				d = f.define(d)
				stored, err := f.console().Definition(t.Context(), "a")
				if err != nil || stored.Schedule != d.Schedule || stored.Overdue != time.Hour || stored.Version != d.Version || stored.By != "operator" || stored.At.IsZero() {
					t.Errorf("%+v, %v", stored, err)
				}
				f.until("00:05:30")
				noErr(t, f.console().Undefine(t.Context(), "a", d.Version))
				f.until("00:12:00")
				f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:05:00")
				if want := []string{`{"to":"acme"}`, "7", "7", "7"}; !slices.Equal(payloads(), want) {
					t.Errorf("payloads %v, want %v", payloads(), want)
				}
				if i := f.inspect("a"); !strings.Contains(i.Problem, "was removed by operator") || !i.Next.IsZero() || i.Version != 0 || i.Last == nil {
					t.Errorf("%+v", i)
				}
				for d, err := range f.console().Definitions(t.Context()) {
					t.Errorf("%v, %v after the removal", d, err)
				}

				// Defined again, it begins anew; ticks in between are not caught up with.
				f.define(report("a"))
				f.until("00:13:30")
				f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:05:00", "00:13:00")
				wantErr(t, f.console().Forget(t.Context(), "a"), "remove its definition first")
				noErr(t, f.console().Undefine(t.Context(), "a", sched.AnyVersion))
				noErr(t, f.console().Forget(t.Context(), "a"))
				if left := f.under(""); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

func wantErr(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %q", err, text)
	}
}

// An operator deletes the notice of a definition: the job does not run, until the same definition
// is stored again. Its version stays.
func TestDefineAgainWithoutNotice(t *testing.T) {
	for name, registered := range map[string]bool{"registered before": true, "not registered before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				ran := f.reports(0)
				want := 2
				if registered {
					want++ // the latest tick of before is caught up with
					f.start(0)
				}
				f.until("00:00:10") // no tick is due at the instant of what follows
				d := f.define(report("r"))
				time.Sleep(time.Second)
				if n := len(f.under("/spec/")); registered != (n > 0) {
					t.Fatalf("%d jobs are registered", n)
				}
				f.server.Delete(t, f.under("/now/defined/")[0].name)
				if !registered {
					f.start(0)
				}
				time.Sleep(2 * time.Minute)
				before := len(ran())
				if again := f.define(report("r")); again.Version != d.Version {
					t.Errorf("version %d, then %d", d.Version, again.Version)
				}
				time.Sleep(2 * time.Minute)
				if n := len(ran()); before != 0 || n != want {
					t.Errorf("%d runs without the notice, and %d with it, want %d", before, n-before, want)
				}
			})
		})
	}
}

// Nobody overwrites a change that he has not seen.
func TestDefineVersions(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		s, ctx := f.console(), t.Context()
		first := f.define(report("a"))
		if again := f.define(report("a")); again.Version != first.Version {
			t.Errorf("version %d, then %d of the same", first.Version, again.Version)
		}
		other := report("a")
		other.Schedule = "@every 10m"
		_, err := s.Define(ctx, other)
		wantIs(t, err, sched.ErrVersion)
		wantErr(t, err, fmt.Sprintf("in version %d, by operator at 2000-01-01T00:00:", first.Version))

		// Of many that change the same version one succeeds.
		results := make(chan error)
		for i := range 10 {
			go func() {
				d := first
				d.Timeout = time.Duration(i+1) * time.Second
				_, err := s.Define(ctx, d)
				results <- err
			}()
		}
		won := 0
		for range 10 {
			if err := <-results; err == nil {
				won++
			} else {
				wantIs(t, err, sched.ErrVersion)
			}
		}
		if won != 1 {
			t.Errorf("%d of ten succeeded", won)
		}
		wantIs(t, s.Undefine(ctx, "a", first.Version), sched.ErrVersion)
		wantIs(t, s.Undefine(ctx, "b", sched.AnyVersion), sched.ErrUnknownJob)
		other.Version = sched.AnyVersion
		other = f.define(other)
		noErr(t, s.Undefine(ctx, "a", other.Version))
		_, err = s.Define(ctx, other)
		wantIs(t, err, sched.ErrVersion)
		_, err = s.Definition(ctx, "a")
		wantIs(t, err, sched.ErrUnknownJob)
	})
}

// A lost request or reply: the definition is stored once, or known not to be.
func TestDefineLostReply(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		n := f.start(0)
		f.until("00:00:30")
		for i, fault := range []claimtest.Fault{{LoseReply: true}, {LoseRequest: true}} {
			fault.On = claimtest.Acquire
			n.host.Inject(fault)
			d := report(fmt.Sprint("a", i))
			version, err := n.sched.Define(t.Context(), d)
			if errors.Is(err, etcdclaims.ErrUnknown) {
				version, err = n.sched.Define(t.Context(), d)
			}
			noErr(t, err)
			if stored, err := f.console().Definition(t.Context(), d.Name); err != nil || stored.Version != version {
				t.Errorf("version %d, stored %+v, %v", version, stored, err)
			}
		}
		f.until("00:02:30")
		f.ledger.want(t, "a0", "00:01:00", "00:02:00")
		f.ledger.want(t, "a1", "00:01:00", "00:02:00")
	})
}

// An owner whose watches hear nothing takes over, changes and drops definitions all the
// same, because it reads the notices again.
func TestDefineDeafOwner(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		n := f.start(0)
		n.deafens().Store(true)
		f.until("00:00:54")
		d := f.define(report("a"))
		f.until("00:01:54")
		d.Schedule = "*/2 * * * *"
		d = f.define(d)
		f.until("00:04:54")
		noErr(t, f.console().Undefine(t.Context(), "a", d.Version))
		f.until("00:10:00")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:04:00")
	})
}

// A definition that the owner cannot run is reported, does not disturb others, and runs when
// there is an owner that can.
func TestDefineProblems(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		core, logs := observer.New(zap.ErrorLevel)
		f.cfg.Logger = zap.New(core)
		f.do(sched.Job{Name: "code", Schedule: minutely}, 0)
		f.define(report("new-kind"))
		good := report("good")
		good.Kind = "other"
		f.define(good)
		f.define(report("newer"))
		f.define(report("strange"))
		for _, k := range f.under("/def/") {
			switch {
			case strings.Contains(k.value, `"name":"newer"`):
				_, err := f.etcd.Put(t.Context(), k.name, `{"v":4,"name":7}`)
				noErr(t, err)
			case strings.Contains(k.value, `"name":"strange"`):
				_, err := f.etcd.Put(t.Context(), k.name, strings.Replace(k.value, "* * * * *", "at noon", 1))
				noErr(t, err)
			}
		}
		_, err := f.etcd.Put(t.Context(), f.under("/now/defined/")[0].name+"x", `{"v":2}`)
		noErr(t, err)

		n := f.start(0)
		noErr(t, n.handle("other", nothingOf))
		_, err = n.sched.Define(t.Context(), report("code"))
		wantErr(t, err, "a job in code has this name")
		f.until("00:00:30")
		_, err = f.console().Define(t.Context(), report("code"))
		wantErr(t, err, "a job in code has this name; if no process has it any more, call Forget first")
		f.until("00:02:30")
		problems := func() string {
			var all []string
			for i, err := range f.console().Jobs(t.Context()) {
				noErr(t, err)
				all = append(all, i.Job+": "+i.Problem)
			}
			return strings.Join(all, "\n")
		}
		for _, want := range []string{
			`new-kind: the owner of the group has no handler of kind "report"`, "good: \n", "code: \n", "newer: the value of", "strange: ",
		} {
			if is := problems() + "\n"; !strings.Contains(is, want) {
				t.Errorf("%s: no %q", is, want)
			}
		}
		unreadable := 0
		for _, err := range f.console().Definitions(t.Context()) {
			if err != nil {
				unreadable++
				wantErr(t, err, "newer than version 3")
			}
		}
		if unreadable != 1 {
			t.Errorf("%d definitions cannot be read", unreadable)
		}
		if got := logs.FilterMessage("definition cannot be run").Len(); got != 3 {
			t.Errorf("%d log lines of 3 definitions", got)
		}
		if got := logs.FilterMessageSnippet("notice").Len(); got != 1 {
			t.Errorf("%d log lines of the notice", got)
		}

		// The kind comes while the process runs.
		noErr(t, n.handle("report", nothingOf))
		f.until("00:04:30")
		f.ledger.want(t, "new-kind", "00:03:00", "00:04:00")
		if is := problems(); strings.Contains(is, "no handler") || !strings.Contains(is, `strange: the Schedule: `) {
			t.Error(is)
		}
		// The next value of the definition can be read.
		d := report("strange")
		d.Version = sched.AnyVersion
		f.define(d)
		d.Name = "newer"
		_, err = f.console().Define(t.Context(), d)
		wantErr(t, err, "newer than version 3")
		f.until("00:05:30")
		f.ledger.want(t, "strange", "00:05:00")
		f.ledger.want(t, "code", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00")
		f.ledger.want(t, "good", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00")
	})
}

func nothingOf(context.Context, sched.Tick, json.RawMessage) error { return nil }

// A process that was rolled back to a version without the kind leaves the job as it is, also
// its runs whose process died. CatchUp decides about the ticks of that time.
func TestDefineRolledBack(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(10 * time.Second)
		d := report("a")
		d.Guarantee, d.CatchUp, d.Overlap = sched.AtLeastOnce, sched.All{}, sched.BufferAll{}
		f.define(d)
		old := f.start(0)
		f.until("00:01:05")
		f.kinds = nil
		f.start(0) // is in line
		f.until("00:01:06")
		old.kill()
		f.until("00:03:30")
		if i := f.inspect("a"); !strings.Contains(i.Problem, "no handler") || len(i.Running) != 1 || i.High.Format(time.TimeOnly) != "00:01:00" {
			t.Errorf("%+v", i)
		}
		f.owner().stop()
		f.reports(10 * time.Second)
		f.start(0)
		f.until("00:04:50")
		f.ledger.want(t, "a", "00:01:00", "00:01:00", "00:02:00", "00:03:00", "00:04:00")
		if i := f.inspect("a"); i.Problem != "" {
			t.Error(i.Problem)
		}
	})
}

// A run of a job whose definition is removed ends as usual, and is not tried again. Waiting
// ticks are recorded.
func TestUndefineDuringRun(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.kinds = map[string]kindHandler{"report": func(context.Context, sched.Tick, json.RawMessage) error {
			time.Sleep(200 * time.Second)
			return errors.New("no disk")
		}}
		d := report("a")
		d.Overlap, d.Retry = sched.BufferAll{}, sched.Retry{Max: 3}
		d = f.define(d)
		f.start(0)
		f.until("00:03:30")
		_, err := f.console().RunNow(t.Context(), "a")
		noErr(t, err)
		noErr(t, f.console().Pause(t.Context(), "a", "why"))
		f.until("00:03:35")
		noErr(t, f.console().Undefine(t.Context(), "a", d.Version))
		wantIs(t, f.console().Forget(t.Context(), "a"), sched.ErrStillRunning)
		f.until("00:20:00")
		f.ledger.want(t, "a", "00:01:00")
		if got, want := f.history("a"), []string{"cancelled 00:02:00", "failed 00:01:00"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if e := f.entries("a")[0]; e.Missed != 2 || !strings.Contains(e.Error, "operator: the definition of the job was removed") {
			t.Errorf("%+v", e)
		}
		if i := f.inspect("a"); i.Paused != nil || len(i.Running)+len(i.Waiting) > 0 {
			t.Errorf("%+v", i)
		}
		noErr(t, f.console().Forget(t.Context(), "a"))
	})
}

// A definition changes while the group has no owner, and while ticks wait.
func TestDefineWithoutOwner(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		payloads := f.reports(90 * time.Second)
		d := report("a")
		d.Overlap, d.StartDeadline = sched.BufferOne{}, time.Minute
		d = f.define(d)
		gone := report("gone")
		gone = f.define(gone)
		n := f.start(0)
		f.until("00:02:10") // the tick of 00:02 waits
		n.kill()
		d.Payload, d.StartDeadline = nil, 0
		f.define(d)
		noErr(t, f.console().Undefine(t.Context(), "gone", gone.Version))
		f.start(0)
		f.until("00:05:00")
		f.ledger.want(t, "gone", "00:01:00")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00")
		if got := payloads(); got[len(got)-1] != "" {
			t.Errorf("%q", got)
		}
	})
}

// The owner dies while it takes a change up.
func TestDefineOwnerDies(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			inFleet(t, func(t *testing.T, f *fleet) {
				f.reports(0)
				f.start(0)
				f.start(0)
				change := func(clock string, what func()) {
					f.until(clock)
					what()
					time.Sleep(after)
					f.owner().kill()
					f.start(0)
				}
				d := report("a")
				change("00:00:30", func() { d = f.define(d) })
				change("00:01:30", func() { d.Schedule = "*/2 * * * *"; d = f.define(d) })
				change("00:04:30", func() { noErr(t, f.console().Undefine(t.Context(), "a", d.Version)) })
				f.until("00:08:30")
				f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:04:00")
				change("00:08:30", func() { f.define(report("a")) })
				f.until("00:09:30")
				f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:04:00", "00:09:00")
			})
		})
	}
}

// A job moves from a definition to code, and back.
func TestDefineAndCode(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		d := f.define(report("a"))
		n := f.start(0)
		f.until("00:01:30")
		noErr(t, n.sched.Add(sched.Job{Name: "a", Schedule: calendar.Must(calendar.Cron("* * * * *")), Handler: f.ledger.record("code", nothing)}))
		f.until("00:03:30")
		if i := f.inspect("a"); i.Kind != "" || !strings.Contains(i.Problem, "a job in code has this name") {
			t.Errorf("%+v", i)
		}
		noErr(t, f.console().Undefine(t.Context(), "a", d.Version))
		f.until("00:04:30")
		if i := f.inspect("a"); i.Problem != "" {
			t.Error(i.Problem)
		}
		var by []string
		for _, d := range f.ledger.all("a") {
			by = append(by, d.By)
		}
		if want := []string{"node0", "code", "code", "code"}; !slices.Equal(by, want) {
			t.Errorf("by %v, want %v", by, want)
		}
		n.stop()
		noErr(t, f.console().Forget(t.Context(), "a"))
		f.define(report("a"))
		f.start(0)
		f.until("00:06:30")
		f.ledger.want(t, "a", "00:01:00", "00:02:00", "00:03:00", "00:04:00", "00:05:00", "00:06:00")
	})
}

// What is invalid is refused before any request.
func TestDefineRefused(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		s := f.console()
		sent := f.requests()
		for says, change := range map[string]func(*sched.Definition){
			"Name is empty":            func(d *sched.Definition) { d.Name = "" },
			"201 bytes":                func(d *sched.Definition) { d.Name = strings.Repeat("x", 201) },
			"ends with /after":         func(d *sched.Definition) { d.Name = "a/after" },
			"Kind is empty":            func(d *sched.Definition) { d.Kind = "" },
			"Kind must be UTF-8":       func(d *sched.Definition) { d.Kind = "\x00" },
			"Schedule has 1001 bytes":  func(d *sched.Definition) { d.Schedule = strings.Repeat("*", 1001) },
			"Schedule: ":               func(d *sched.Definition) { d.Schedule = "at noon" },
			"Payload has 16385 bytes":  func(d *sched.Definition) { d.Payload = make([]byte, 16<<10+1) },
			"Payload is not valid":     func(d *sched.Definition) { d.Payload = []byte("{") },
			"Revision has 201 bytes":   func(d *sched.Definition) { d.Revision = strings.Repeat("x", 201) },
			"Retry.On cannot be":       func(d *sched.Definition) { d.Retry.On = func(error) bool { return true } },
			"History 1001":             func(d *sched.Definition) { d.History = 1001 },
			"HistoryFor -1ns":          func(d *sched.Definition) { d.HistoryFor = -1 },
			"17 Tags; the limit is 16": func(d *sched.Definition) { d.Tags = make([]string, 17) },
			"a tag is empty":           func(d *sched.Definition) { d.Tags = []string{"t", ""} },
			"Guarantee(7)":             func(d *sched.Definition) { d.Guarantee = 7 },
			"Overlap skip would leave": func(d *sched.Definition) { d.CatchUp = sched.All{Max: 7} },
			"Overlap BufferAll{Max: -": func(d *sched.Definition) { d.Overlap = sched.BufferAll{Max: -1} },
			"Version -2 is invalid":    func(d *sched.Definition) { d.Version = -2 },
		} {
			d := report("a")
			change(&d)
			_, err := s.Define(t.Context(), d)
			if wantErr(t, err, says); err != nil && !strings.HasPrefix(err.Error(), "sched: defin") {
				t.Error(err)
			}
		}
		if n := f.requests() - sent; n != 0 {
			t.Errorf("%d requests", n)
		}
		noErr(t, s.Handle("k", nothingOf))
		for kind, says := range map[string]string{"k": "has a handler already", "": "is empty", "nil": "has no handler"} {
			h := nothingOf
			if kind == "nil" {
				h = nil
			}
			wantErr(t, s.Handle(kind, h), says)
		}
	})
	s, err := sched.New(without(t), sched.Config{Group: "default"})
	noErr(t, err)
	_, err = s.Define(t.Context(), report("a"))
	wantIs(t, err, etcdclaims.ErrPassthrough)
	wantIs(t, s.Undefine(t.Context(), "a", 1), etcdclaims.ErrPassthrough)
	_, err = s.Definition(t.Context(), "a")
	wantIs(t, err, etcdclaims.ErrPassthrough)
}

// A group has a limited number of definitions.
func TestDefineLimit(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.define(report("a"))
		root := f.under("/def/")[0].name
		for i := range 20 {
			var puts []clientv3.Op
			for j := range 100 {
				puts = append(puts, clientv3.OpPut(fmt.Sprint(root, i, "-", j), "{}"))
			}
			_, err := f.etcd.Txn(t.Context()).Then(puts...).Commit()
			noErr(t, err)
		}
		_, err := f.console().Define(t.Context(), report("b"))
		wantErr(t, err, "2001 definitions, which is the limit")
		a := report("a")
		a.Timeout, a.Version = time.Second, sched.AnyVersion
		f.define(a) // a change is still possible
	})
}

func TestDefinitionJSON(t *testing.T) {
	whole := sched.Definition{
		Name: "a", Schedule: "TZ=Europe/Berlin 30 2 * * *", Kind: "report", Payload: json.RawMessage(`{"to":["acme"]}`), Revision: "2",
		CatchUp: sched.All{Max: 7, Window: time.Hour}, Overlap: sched.BufferAll{Max: 8}, Guarantee: sched.AtLeastOnce, MaxStarts: 4,
		Retry: sched.Retry{Max: 2, Backoff: time.Second}, StartDeadline: 30 * time.Minute, Overdue: 2 * time.Hour, Jitter: time.Minute,
		Timeout: 10 * time.Minute, RunOnStart: true, PauseOnFailure: 3, History: 50, Version: 12, By: "me", At: time.Unix(1e9, 0).UTC(),
	}
	for _, d := range []sched.Definition{
		whole,
		{Name: "b", Schedule: "@every 1h", Kind: "k"},
		{Name: "c", CatchUp: sched.SkipMissed{}, Overlap: sched.Allow{}},
		{Name: "d", CatchUp: sched.Latest{}, Overlap: sched.CancelRunning{}},
		{Name: "e", Overlap: sched.Skip{}},
		{Name: "f", Overlap: sched.BufferOne{}},
		{Name: "g", AfterAll: []string{"a", "b"}, AfterOn: "end", Tags: []string{"t"}, HistoryFor: time.Hour},
		{Name: "h", Schedule: "* * * * *", Start: time.Unix(1e9, 0).UTC(), End: time.Unix(2e9, 0).UTC(), Runs: 3},
	} {
		text, err := json.Marshal(d)
		noErr(t, err)
		var back sched.Definition
		noErr(t, json.Unmarshal(text, &back))
		if fmt.Sprintf("%+v", d) != fmt.Sprintf("%+v", back) {
			t.Errorf("%s:\n%+v, was\n%+v", text, back, d)
		}
	}
	const want = `{"name":"a","schedule":"TZ=Europe/Berlin 30 2 * * *","kind":"report","payload":{"to":["acme"]},"revision":"2",` +
		`"catchUp":"all","catchUpMax":7,"catchUpWindow":"1h0m0s","overlap":"buffer-all","bufferMax":8,"guarantee":"at-least-once","maxStarts":4,` +
		`"retryMax":2,"retryBackoff":"1s","startDeadline":"30m0s","overdue":"2h0m0s","jitter":"1m0s","timeout":"10m0s","runOnStart":true,` +
		`"pauseOnFailure":3,"history":50,"version":"12","by":"me","at":"2001-09-09T01:46:40Z"}`
	if text, err := json.Marshal(whole); err != nil || string(text) != want {
		t.Errorf("%s, %v, want\n%s", text, err, want)
	}
	noErr(t, whole.Validate())
	for text, says := range map[string]string{
		`{"name":"a","shedule":"x"}`:            `unknown field "shedule"`,
		`{"name":"a","catchUp":"some"}`:         `catchUp "some" is unknown`,
		`{"name":"a","overlap":"some"}`:         `overlap "some" is unknown`,
		`{"name":"a","guarantee":"some"}`:       `guarantee "some" is unknown`,
		`{"name":"a","bufferMax":3}`:            "bufferMax needs overlap buffer-all",
		`{"name":"a","catchUpWindow":"1h0m0s"}`: "need catchUp all",
		`{"name":"a","timeout":"soon"}`:         "invalid duration",
	} {
		var d sched.Definition
		wantErr(t, json.Unmarshal([]byte(text), &d), says)
	}
}

// What Define accepts, an owner accepts too, although its stored form is longer.
func TestDefineEscaped(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		payloads := f.reports(0)
		f.start(0)
		d := report("a")
		d.Payload = json.RawMessage(`"` + strings.Repeat("<b>", 5000) + `"`)
		f.define(d)
		for _, invalid := range []sched.Definition{{Revision: "\xff"}, {Payload: json.RawMessage("\"\xff\"")}} {
			is := report("b")
			is.Revision, is.Payload = invalid.Revision, invalid.Payload
			wantErr(t, is.Validate(), "UTF-8")
		}
		f.until("00:01:30")
		f.ledger.want(t, "a", "00:01:00")
		var got, want string
		noErr(t, json.Unmarshal([]byte(payloads()[0]), &got))
		noErr(t, json.Unmarshal(d.Payload, &want))
		if got != want {
			t.Errorf("payload of %d bytes, want %d", len(got), len(want))
		}
	})
}

// A value under another job's key does not stop a job in code.
func TestDefineOtherName(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.reports(0)
		f.do(sched.Job{Name: "code", Schedule: minutely}, 0)
		f.define(report("x"))
		k := f.under("/def/")[0]
		_, err := f.etcd.Put(t.Context(), k.name, strings.Replace(k.value, `"name":"x"`, `"name":"code"`, 1))
		noErr(t, err)
		n := f.start(0)
		f.until("00:00:30")
		n.stop()
		f.start(0) // reads all when the definition is known
		f.until("00:02:30")
		f.ledger.want(t, "code", "00:01:00", "00:02:00")
		if i := f.inspect("x"); !strings.Contains(i.Problem, `is that of job "code"`) {
			t.Errorf("%+v", i)
		}
	})
}
