package life

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/etcdclaims/claims/internal/claimerr"
)

var errAway = errors.New("away")

// Which calls begin a goroutine at each step of the end, and which contexts have ended.
func TestSteps(t *testing.T) {
	t.Parallel()
	steps := []struct {
		name             string
		end              func(l *Life)
		goes, finishes   bool
		closed, open, io bool
	}{
		{"new", func(*Life) {}, true, true, false, true, true},
		{"BeginEnd", (*Life).BeginEnd, false, true, true, true, true},
		{"Refuse", (*Life).Refuse, false, true, true, false, true},
		{"End", (*Life).End, false, false, true, false, false},
		{"End again", (*Life).End, false, false, true, false, false},
	}
	l, nothing := New(), func() {}
	for _, step := range steps {
		step.end(l)
		if goes, finishes := l.Go(nothing), l.Finish(nothing); goes != step.goes || finishes != step.finishes {
			t.Errorf("%s: Go %v, Finish %v", step.name, goes, finishes)
		}
		if open, io := l.Open.Err() == nil, l.IO.Err() == nil; l.Closed() != step.closed || open != step.open || io != step.io {
			t.Errorf("%s: closed %v, open %v, IO %v", step.name, l.Closed(), open, io)
		}
	}
}

// End returns after the last goroutine, and tells each by IO to return.
func TestEndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, release := New(), make(chan struct{})
		var told, ended sync.WaitGroup
		for _, begin := range []func(func()) bool{l.Go, l.Finish} {
			told.Add(1)
			if !begin(func() { <-l.IO.Done(); told.Done(); <-release }) {
				t.Fatal("not begun")
			}
		}
		over := false
		ended.Go(func() { l.End(); over = true })
		told.Wait()
		synctest.Wait()
		if over {
			t.Error("ended while goroutines run")
		}
		close(release)
		ended.Wait()
	})
}

func TestExplain(t *testing.T) {
	t.Parallel()
	closed := fmt.Errorf("in a call: %w", claimerr.ErrClosed)
	for _, tt := range []struct {
		name    string
		refused bool
		err     error
		want    string // "" is nil
	}{
		{"open", false, errAway, "away"},
		{"open, no error", false, nil, ""},
		{"closed", true, errAway, "etcdclaims: client is closed (away)"},
		{"closed, no error", true, nil, "etcdclaims: client is closed"},
		{"closed, and said so", true, closed, closed.Error()},
	} {
		l := New()
		if tt.refused {
			l.Refuse()
		}
		got := l.Explain(tt.err)
		if text := fmt.Sprint(got); tt.want == "" && got != nil || tt.want != "" && text != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		if errors.Is(got, claimerr.ErrClosed) != tt.refused || errors.Is(got, errAway) != errors.Is(tt.err, errAway) {
			t.Errorf("%s: %v matches others", tt.name, got)
		}
		l.End()
		l.Refuse()
	}
}
