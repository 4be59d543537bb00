package work_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// Work that is done, dead or waiting is begun again by those who ask for that, and
// by nobody else.
func TestAgain(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		end   func(w *work.Work) error
		state work.State
		err   error
	}{
		"done":   {func(w *work.Work) error { return w.CompleteWith(ctx, []byte("first")) }, work.StateDone, work.ErrDone},
		"dead":   {func(w *work.Work) error { return failing(ctx, w, etcdclaims.Permanent(boom)) }, work.StateDead, work.ErrDead},
		"failed": {func(w *work.Work) error { return failing(ctx, w, boom) }, work.StateFailed, work.ErrBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, _ := twoOwners(t, etcd, config{MaxAttempts: 1000, Backoff: func(int) time.Duration { return time.Hour }})
			for i, begin := range []func(context.Context, string, ...work.Option) (*work.Work, error){b.TryBegin, b.Begin} {
				key := []string{"try", "wait"}[i]
				noErr(t, tt.end(tryBegin(t, a, key)))
				for _, other := range []work.State{work.StateDone, work.StateDead, work.StateFailed} {
					if other != tt.state {
						_, err := begin(ctx, key, work.Again(other))
						wantIs(t, err, tt.err)
					}
				}
				w, err := begin(ctx, key, work.Again(tt.state))
				noErr(t, err)
				p, ok := w.Previous()
				if !ok || p.State != tt.state || w.Attempt() != 2 || (p.Result == "first") != (tt.state == work.StateDone) {
					t.Errorf("attempt %d after %+v, %v", w.Attempt(), p, ok)
				}
				r, _, err := a.Record(ctx, key)
				if want := map[work.State]int{work.StateFailed: 0}[tt.state]; err != nil || tt.state != work.StateFailed && r.Earlier != 1 || tt.state == work.StateFailed && r.Earlier != want {
					t.Errorf("recorded %+v, %v", r, err)
				}
				noErr(t, w.CompleteWith(ctx, []byte("second")))
				if r, _, err := a.Record(ctx, key); err != nil || r.Result != "second" || r.State != work.StateDone {
					t.Errorf("recorded %+v, %v", r, err)
				}
				w, err = begin(ctx, key, work.Again()) // whatever it is
				noErr(t, err)
				noErr(t, w.Release(ctx))
			}
		})
	}
}

// An orphan says what it was.
func TestNoteInTheRecord(t *testing.T) {
	t.Parallel()
	ctx, etcd := t.Context(), testetcd.Shared(t).Client(t)
	a, b, _ := twoOwners(t, etcd, config{})
	for key, note := range map[string]string{"text": "invoice 42 of ACME", "bytes": "\xff\x00"} {
		tryBegin(t, a, key, etcdclaims.Note([]byte(note)))
		vanish(t, etcd, b, key)
		if o, err := orphansOf(ctx, b, 0); err != nil || len(o) != 1 || o[0].Note != note {
			t.Errorf("orphans %+v, %v", o, err)
		}
		w := tryBegin(t, b, key) // without a note of its own
		if p, _ := w.Previous(); p.Note != note {
			t.Errorf("previous %+v", p)
		}
		noErr(t, w.Complete(ctx))
		if r, _, err := a.Record(ctx, key); err != nil || r.Note != note {
			t.Errorf("recorded %+v, %v", r, err)
		}
	}
	noErr(t, tryBegin(t, a, "text", work.Again(), etcdclaims.Note([]byte("other"))).Complete(ctx))
	if r, _, err := a.Record(ctx, "text"); err != nil || r.Note != "other" {
		t.Errorf("recorded %+v, %v", r, err)
	}
}
