package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/sched"
)

type stepFunc = func(ctx context.Context, key string) error

// each is a loop that needs no preparation.
func each(step func(ctx context.Context, w *world, key string) error) func(w *world) stepFunc {
	return func(w *world) stepFunc {
		return func(ctx context.Context, key string) error { return step(ctx, w, key) }
	}
}

func second(_ any, err error) error { return err }

// unless returns the error of a call, unless it is the one that the call has without a refusal.
func unless(expected error) func(_ any, err error) error {
	return func(_ any, err error) error {
		if errors.Is(err, expected) {
			return nil
		}
		return err
	}
}

func firstError[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// sees waits until something came through a channel, and fails if the loop has ended.
func sees(ctx context.Context, seen <-chan string, what string, runs func() error) error {
	for {
		select {
		case got := <-seen:
			if got == what {
				return runs()
			}
		case <-ctx.Done():
			if err := runs(); err != nil {
				return err
			}
			return fmt.Errorf("%q has not come", what)
		}
	}
}

func emptied(c chan string) chan string {
	for len(c) > 0 {
		<-c
	}
	return c
}

// A loop ends with a refusal that would be repeated, or goes on. It reports no success of what was refused, and never hangs.
func TestLoopsEndWithRefusals(t *testing.T) {
	t.Parallel()
	for _, l := range slices.Concat(ofClaims, ofOthers) {
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			ends(t, l)
		})
	}
}

func TestLoopsOutliveRefusals(t *testing.T) {
	t.Parallel()
	for _, l := range slices.Concat(ofClaims, ofOthers) {
		t.Run(strings.ReplaceAll(l.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			outlives(t, l)
		})
	}
}

// sharing are methods that have no loop of their own, by the loop through which they send requests.
// The calls of theCalls are no loops.
var sharing = map[string]string{
	"Client.Acquire": "Claim.Bind",
	"Client.TryAcquire": `Runner.TryBegin Client.TryRun Runner.TryOnce Runner.TryRun Client.TryAcquireAll Client.TryAcquireEach
		Queue.TryClaim`,
	"Client.Run":         "Claim.Run",
	"Runner.Run":         "Work.Run",
	"Client.Lookup":      "admin.Lines Client.Owns Runner.Record",
	"Client.List":        "admin.Sessions",
	"Runner.Records":     "Runner.Orphans",
	"admin.ForceRelease": "admin.ForceReleaseTerm",
	"Claim.Release":      "Client.ReleaseAll Client.Close Queue.Close Member.Leave",
	"Work.Complete":      "Work.CompleteWith Work.ReleaseWith",
	"Queue.Claim": `Delivery.Complete Delivery.Discard Delivery.Fail Delivery.Release Delivery.Snooze Delivery.Heartbeat
		Queue.Adopt`,
	"Queue.Enqueue":       "Queue.EnqueueAll",
	"Queue.Pause":         "Queue.Resume",
	"Queue.Look":          "Queue.Wait",
	"Scheduler.Pause":     "Scheduler.PauseGroup Scheduler.PauseTag Scheduler.ResumeGroup Scheduler.ResumeTag",
	"Scheduler.Inspect":   "Scheduler.Definition Scheduler.Explain Scheduler.PausedJobs",
	"a member of a group": "Member.Admit",
	"Locks.TryAcquire":    "Locks.Renew Locks.IsLocked Locks.Owner Locks.ReleaseAll",
	"none":                `View.Call View.Watch`, // they send nothing, and end with ctx only
}

// Loops that must not be missing above, of the types whose methods send requests. A method that is
// added must be added there, to theCalls, or here with the loop that it shares.
func TestEveryLoopIsTried(t *testing.T) {
	t.Parallel()
	tried, shares := map[string]bool{}, map[string]bool{}
	for _, l := range slices.Concat(ofClaims, ofOthers) {
		tried[l.name] = true
	}
	for _, c := range theCalls {
		tried[c.name] = true
	}
	for loop, names := range sharing {
		if !tried[loop] && loop != "none" {
			t.Errorf("%s is no loop", loop)
		}
		for _, shared := range strings.Fields(names) {
			shares[shared] = true
		}
	}
	own := map[string]bool{"Work.Complete": true, "Work.Fail": true, "Work.Release": true, "Work.CompleteWith": true, "Work.Run": true, "Work.ReleaseWith": true}
	for _, of := range []any{
		(*etcdclaims.Client)(nil), (*etcdclaims.Claim)(nil), (*work.Runner)(nil), (*work.Work)(nil), (*queue.Queue)(nil), (*queue.Delivery)(nil),
		(*sched.Scheduler)(nil), (*group.Member)(nil), (*group.View)(nil), (*locks.Locks)(nil),
	} {
		typ := reflect.TypeOf(of)
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			name := typ.Elem().Name() + "." + m.Name
			if m.Type.NumIn() < 2 || m.Type.In(1) != reflect.TypeFor[context.Context]() || typ.Elem().Name() == "Work" && !own[name] {
				continue // the others of Work are those of its claim
			}
			if !tried[name] && !shares[name] {
				t.Errorf("%s is in no loop", name)
			}
		}
	}
}
