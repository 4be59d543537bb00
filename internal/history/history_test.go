package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/history"
)

// kept returns the history as JSON.
func kept(t *testing.T, h *history.History) string {
	t.Helper()
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// roundTrip returns the history as read after it was kept.
func roundTrip(t *testing.T, h *history.History) *history.History {
	t.Helper()
	text := kept(t, h)
	again, err := history.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := kept(t, again); got != text {
		t.Errorf("kept as\n%s\nand read as\n%s", text, got)
	}
	return again
}

// What the SDK returns is taken for what it is.
func TestReturned(t *testing.T) {
	lost := func(r etcdclaims.Reason) error {
		return fmt.Errorf("commit: %w", &etcdclaims.LostError{Token: tok(1), Reason: r})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "done"},
		{etcdclaims.ErrUnknown, "unknown"},
		{errors.Join(etcdclaims.ErrUnknown, context.Canceled), "unknown"},
		{lost(etcdclaims.ReasonDeleted), "refused"},
		{lost(etcdclaims.ReasonSuperseded), "refused"},
		{lost(etcdclaims.ReasonRevoked), "refused"},
		{lost(etcdclaims.ReasonExpired), "lost"},
		{lost(etcdclaims.ReasonMaxHold), "lost"},
		{etcdclaims.ErrReleased, "lost"},
		{etcdclaims.ErrTooLarge, "failed"},
		{context.Canceled, "failed"},
	} {
		h := history.New()
		h.Effect("a", tok(1)).Returned(c.err)
		if text := kept(t, h); !strings.Contains(text, `"kind":"`+c.want+`"`) {
			t.Errorf("%v is not %s: %s", c.err, c.want, text)
		}
	}
	h := history.New()
	h.Acquire("a", "k").Acquired(nil, etcdclaims.ErrHeld)
	if text := kept(t, h); !strings.Contains(text, `"kind":"failed"`) {
		t.Error(text)
	}
}

// A call returns once, with what it can end with.
func TestMisuse(t *testing.T) {
	for name, misuse := range map[string]func(h *history.History){
		"twice":              func(h *history.History) { c := h.Effect("a", tok(1)); c.Done(); c.Unknown() },
		"acquire without":    func(h *history.History) { h.Acquire("a", "k").Done() },
		"release with fence": func(h *history.History) { h.Release("a", tok(1)).Granted(2) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse(history.New())
		})
	}
}

// Recording is safe for concurrent use, while it is checked too.
func TestConcurrentRecording(t *testing.T) {
	h := history.New()
	var all sync.WaitGroup
	for p := range 8 {
		all.Go(func() {
			name := fmt.Sprint("p", p)
			for i := range int64(50) {
				c := h.Acquire(name, name)
				h.Logf("step %d", i)
				c.Granted(i + 1)
				tk := tok(i + 1)
				tk.Key = name
				h.Checked(name, tk)
				h.Release(name, tk).Done()
			}
		})
	}
	for range 10 {
		_ = h.Check(history.Checks{}) // calls are open: anything may be said of them
	}
	all.Wait()
	if err := roundTrip(t, h).Check(history.Checks{}); err != nil {
		t.Error(err)
	}
}
