package etcdclaims_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

func (w *world) history(c *etcdclaims.Client, key string) admin.KeyHistory {
	w.Helper()
	h, err := admin.History(w.Context(), c, key)
	noErr(w, err)
	return h
}

func endings(h admin.KeyHistory) []admin.Ending {
	var all []admin.Ending
	for _, t := range h.Terms {
		all = append(all, t.Ending)
	}
	return all
}

func TestHistory(t *testing.T) {
	t.Parallel()
	virtualCase(t, "endings", func(t *testing.T, w *world) {
		ctx := t.Context()
		a, host := w.client(etcdclaims.Config{Owner: "a", TTL: 15 * sec})
		b, _ := w.client(etcdclaims.Config{Owner: "b", TTL: 15 * sec})
		if h := w.history(b, "k"); len(h.Terms) != 0 || h.From != 1 || h.Revision == 0 {
			t.Errorf("of a key that never was: %+v", h)
		}
		tryClaim(t, b, "kk") // another key
		noErr(t, tryClaim(t, a, "k").Release(ctx))

		held := tryClaim(t, a, "k")
		waiting := acquiring(ctx, b, "k")
		eventually(t, "b waits", func() bool { return w.places() == 1 })
		noErr(t, held.Release(ctx))
		handed := w.within(5*sec, waiting)
		noErr(t, admin.ForceRelease(ctx, a, "k", "stuck"))
		<-handed.Done()

		tryClaim(t, a, "k")
		tryClaim(t, a, "k", etcdclaims.Supersede())
		noErr(t, admin.ForceRelease(ctx, b, "k", ""))
		noErr(t, tryClaim(t, b, "k", etcdclaims.MinHold(30*sec)).Release(ctx))
		time.Sleep(time.Minute)
		lost := tryClaim(t, a, "k")
		host.Cut()
		time.Sleep(time.Minute)
		last := tryClaim(t, b, "k")

		h := w.history(b, "k")
		want := []admin.Ending{
			"released", "handed over", "forced", "replaced",
			"forced", "replaced", "lease ended", "lease ended", "",
		}
		if got := endings(h); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		for i, term := range h.Terms {
			if i > 0 && term.Fence <= h.Terms[i-1].Fence || term.Key != "k" || term.Partial || term.Since.IsZero() ||
				(term.EndRevision == 0) != (i == len(h.Terms)-1) || term.EndRevision != 0 && term.EndRevision <= term.Fence {
				t.Errorf("%d: %+v", i, term)
			}
		}
		if got := h.Terms[2]; got.Cause != "a: stuck" || got.Owner != "b" || got.Fence != handed.Fence() {
			t.Errorf("%+v", got)
		}
		if h.Terms[7].Fence != lost.Fence() || h.Terms[8].Fence != last.Fence() || h.Terms[8].Claim != last.ID() {
			t.Errorf("%+v", h.Terms[7:])
		}
	})
	virtualCase(t, "work", func(t *testing.T, w *world) {
		ctx, c := t.Context(), w.peer()
		work := tryBegin(t, c, "k")
		noErr(t, work.Release(ctx))
		work = tryBegin(t, c, "k")
		noErr(t, failing(ctx, work, etcdclaims.RetryAfter(errors.New("x"), 0)))
		work = tryBegin(t, c, "k")
		noErr(t, work.Complete(ctx))
		want := []admin.Ending{"released", "failed", "done"}
		if got := endings(w.history(c, "k")); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	virtualCase(t, "compaction", func(t *testing.T, w *world) {
		ctx, c := t.Context(), w.peer()
		noErr(t, tryClaim(t, c, "k").Release(ctx))
		second := tryClaim(t, c, "k")
		_, err := w.Raw.Compact(ctx, second.Revision()+1)
		if err != nil { // its own revision is the newest
			put, err := w.Raw.Put(ctx, "other", "")
			noErr(t, err)
			_, err = w.Raw.Compact(ctx, put.Header.Revision)
			noErr(t, err)
		}
		h := w.history(c, "k")
		if len(h.Terms) != 1 || !h.Terms[0].Partial || h.Terms[0].Fence != second.Fence() || h.Terms[0].EndRevision != 0 {
			t.Errorf("held since before the compaction: %+v", h)
		}
		noErr(t, second.Release(ctx))
		h = w.history(c, "k")
		if len(h.Terms) != 1 || h.From <= second.Revision() || !h.Terms[0].Partial || h.Terms[0].Fence != second.Fence() || h.Terms[0].Ending != "released" {
			t.Errorf("%+v", h)
		}
	})
	virtualCase(t, "etcd away", func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		host.Cut()
		_, err := admin.History(t.Context(), c, "k")
		if err == nil {
			t.Error("no error")
		}
		_, err = admin.History(t.Context(), c, "")
		wantIs(t, err, etcdclaims.ErrInvalidKey)
	})
	t.Run("passthrough", func(t *testing.T) {
		t.Parallel()
		h, err := admin.History(t.Context(), newClient(t, nil, etcdclaims.Config{}), "k")
		if err != nil || len(h.Terms) != 0 {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

func TestForceReleaseTerm(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		a, b := w.peer(), w.peer()
		first := tryClaim(t, a, "k")
		noErr(t, first.Release(ctx))
		err := admin.ForceReleaseTerm(ctx, b, first.Token(), "stuck")
		wantIs(t, err, etcdclaims.ErrRefused)
		if errors.Is(err, etcdclaims.ErrHeld) {
			t.Errorf("of a free key: %v", err)
		}
		second := tryClaim(t, a, "k")
		err = admin.ForceReleaseTerm(ctx, b, first.Token(), "stuck")
		wantIs(t, err, etcdclaims.ErrRefused)
		var held *etcdclaims.HeldError
		if !errors.As(err, &held) || held.Info.Fence != second.Fence() {
			t.Errorf("got %v", err)
		}
		wantIs(t, admin.ForceReleaseTerm(ctx, b, fencing.Token{Key: "k"}, "stuck"), etcdclaims.ErrRefused)
		wantIs(t, admin.ForceReleaseTerm(ctx, b, fencing.Token{Fence: 1}, "stuck"), etcdclaims.ErrInvalidKey)
		noErr(t, second.Check())
		noErr(t, admin.ForceReleaseTerm(ctx, b, second.Token(), "stuck"))
		<-second.Done()
		if err := second.Err(); !strings.Contains(err.Error(), "stuck") {
			t.Errorf("lost with %v", err)
		}
	})
}

// A member answers no request for progress on a stream with a watch that waits for a
// revision to come, as Watch does while etcd is idle. Virtual members answer it.
func TestHistoryWhileWatching(t *testing.T) {
	t.Parallel()
	server := testetcd.Start(t, testetcd.NoSync())
	c := claimtest.NewClient(t, testclaims.EtcdFunc(server.Client), etcdclaims.Config{})
	tryClaim(t, c, "k")
	tryClaim(t, c, "other") // the last write is not of the key
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	synced, ended := make(chan bool, 1), make(chan bool)
	go func() {
		defer close(ended)
		for e := range c.Watch(ctx, "") {
			if e.Kind == etcdclaims.Synced {
				synced <- true
			}
		}
	}()
	<-synced
	reading, stop := context.WithTimeout(ctx, 10*sec)
	defer stop()
	if h, err := admin.History(reading, c, "k"); err != nil || len(h.Terms) != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	cancel()
	<-ended
}

// A compaction while a history is read costs what is known of the endings, not the history.
func TestHistoryCompactedMeanwhile(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a := w.peer()
		b, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		for range 5 {
			release(t, tryClaim(t, a, "k"))
		}
		cl := tryClaim(t, a, "k")
		host.Inject(claimtest.Fault{On: claimtest.Verify, Skip: 1, Saw: func(any) { w.Server.Compact(t) }})
		h := w.history(b, "k")
		if len(h.Terms) != 6 || h.Terms[5].Fence != cl.Fence() || h.Terms[5].Ending != "" {
			t.Fatalf("%+v", h.Terms)
		}
		unknown := 0
		for _, term := range h.Terms[:5] {
			if term.Ending == "unknown" {
				unknown++
			} else if term.Ending != "released" {
				t.Errorf("%+v", term)
			}
		}
		if unknown == 0 {
			t.Error("nothing was compacted")
		}
	})
}

// A shared key's term ends as the claim of its last holder did.
func TestHistoryOfSharedKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		want  admin.Ending
		cause string
		end   func(t *testing.T, w *world, a, b *etcdclaims.Client, host *claimtest.Host, one, two *etcdclaims.Claim)
	}{
		{
			"last released", "released", "",
			func(t *testing.T, w *world, a, b *etcdclaims.Client, _ *claimtest.Host, one, two *etcdclaims.Claim) {
				release(t, two)
				release(t, one)
			},
		},
		{
			"last died", "lease ended", "",
			func(t *testing.T, w *world, a, b *etcdclaims.Client, host *claimtest.Host, one, two *etcdclaims.Claim) {
				host.Kill()
				time.Sleep(sec)
				release(t, two)
				release(t, w.within(20*sec, acquiring(t.Context(), b, "k")))
			},
		},
		{
			"one died, the last released", "released", "",
			func(t *testing.T, w *world, a, b *etcdclaims.Client, host *claimtest.Host, one, two *etcdclaims.Claim) {
				host.Kill()
				time.Sleep(20 * sec)
				release(t, two)
			},
		},
		{
			"forced", "forced", "b: stuck",
			func(t *testing.T, w *world, a, b *etcdclaims.Client, _ *claimtest.Host, one, two *etcdclaims.Claim) {
				noErr(t, admin.ForceRelease(t.Context(), b, "k", "stuck"))
				<-one.Done()
				<-two.Done()
			},
		},
		{
			"one forced, the last released", "released", "",
			func(t *testing.T, w *world, a, b *etcdclaims.Client, _ *claimtest.Host, one, two *etcdclaims.Claim) {
				noErr(t, admin.ForceRelease(t.Context(), b, etcdclaims.SharedPrefix("k")+one.ID(), "stuck"))
				<-one.Done()
				release(t, two)
			},
		},
		{
			"dead, and forced", "forced", "b: stuck",
			func(t *testing.T, w *world, a, b *etcdclaims.Client, host *claimtest.Host, one, two *etcdclaims.Claim) {
				release(t, two)
				host.Kill()
				noErr(t, admin.ForceRelease(t.Context(), b, "k", "stuck"))
			},
		},
		{
			"rests", "lease ended", "",
			func(t *testing.T, w *world, a, b *etcdclaims.Client, _ *claimtest.Host, one, two *etcdclaims.Claim) {
				release(t, two)
				release(t, one)
				release(t, tryClaim(t, a, "k", etcdclaims.Shared(), etcdclaims.MinHold(20*sec)))
				time.Sleep(30 * sec)
				release(t, tryClaim(t, b, "k"))
			},
		},
	} {
		virtualCase(t, c.name, func(t *testing.T, w *world) {
			a, host := w.client(etcdclaims.Config{Owner: "a", TTL: 15 * sec})
			b, _ := w.client(etcdclaims.Config{Owner: "b", TTL: 15 * sec})
			one, two := tryClaim(t, a, "k", etcdclaims.Shared()), tryClaim(t, b, "k", etcdclaims.Shared())
			c.end(t, w, a, b, host, one, two)
			time.Sleep(sec) // a record may be deleted in the background
			shared := admin.Term{}
			for _, term := range w.history(b, "k").Terms {
				if term.Kind == "shared" {
					shared = term
				}
			}
			if shared.Ending != c.want || shared.Cause != c.cause || shared.EndRevision == 0 {
				t.Errorf("got %q %q, want %q %q: %+v", shared.Ending, shared.Cause, c.want, c.cause, shared)
			}
			host.Heal()
		})
	}
}

// A shared key is held since before the compaction, and its holder dies.
func TestHistoryOfSharedKeySinceBeforeTheCompaction(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		a, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		b := w.peer()
		cl := tryClaim(t, a, "k", etcdclaims.Shared())
		tryClaim(t, b, "other")
		w.Server.Compact(t)
		if h := w.history(b, "k"); len(h.Terms) != 1 || !h.Terms[0].Partial || h.Terms[0].EndRevision != 0 || h.Terms[0].Fence != cl.Fence() {
			t.Fatalf("while it is held: %+v", h)
		}
		host.Kill()
		release(t, w.within(20*sec, acquiring(t.Context(), b, "k")))
		h := w.history(b, "k")
		if got := endings(h); !slices.Equal(got, []admin.Ending{"lease ended", "released"}) || !h.Terms[0].Partial {
			t.Errorf("%+v", h)
		}
	})
}

// History sends one request for many terms, and only those that Newest asks for.
func TestHistoryCost(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	virtually(t, func(t *testing.T, w *world) {
		c := w.peer()
		const terms = 400
		for i := range terms {
			noErr(t, tryClaim(t, c, "k").Release(t.Context()))
			if i%4 == 0 {
				noErr(t, tryClaim(t, c, "k!").Release(t.Context())) // between the key and what shares it
			}
		}
		read := func(opts ...admin.HistoryOption) (admin.KeyHistory, int64) {
			before := c.Stats().Requests
			h, err := admin.History(t.Context(), c, "k", opts...)
			noErr(t, err)
			return h, c.Stats().Requests - before
		}
		all, n := read()
		if len(all.Terms) != terms || all.Older != 0 || n > 1+terms*3/128+1 {
			t.Errorf("%d terms, %d older, with %d requests", len(all.Terms), all.Older, n)
		}
		for _, newest := range []int{1, 10, 300, terms, terms + 1} {
			h, n := read(admin.Newest(newest))
			want := all.Terms[max(0, terms-newest):]
			if !slices.Equal(h.Terms, want) || h.Older != terms-len(want) || n > 2+int64(len(want))*3/128 {
				t.Errorf("Newest(%d): %d terms, %d older, with %d requests", newest, len(h.Terms), h.Older, n)
			}
		}
		for _, wrong := range []int{-1, 0, 10_001} {
			before := c.Stats().Requests
			if _, err := admin.History(t.Context(), c, "k", admin.Newest(wrong)); err == nil || c.Stats().Requests > before {
				t.Errorf("Newest(%d): %v", wrong, err)
			}
		}
	})
}
