package outage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/internal/attach"
	"github.com/etcdclaims/claims/internal/txn"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const patience = 5 * time.Second

var errAway = status.Error(codes.Unavailable, "away")

// client is a client whose etcd can be away.
type client struct {
	*Outage
	logs       *observer.ObservedLogs
	away       atomic.Bool
	probes     atomic.Int64
	unanswered atomic.Int64
}

// follow runs test with a client in virtual time.
func follow(t *testing.T, test func(t *testing.T, c *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		io, stop := context.WithCancel(context.Background())
		c := &client{logs: logs}
		c.Outage = New(Config{
			Etcd: clientv3.NewCtxClient(io), Log: zap.New(core), Instance: "i", Patience: patience,
			AtStake: func(keys int) Stake {
				return Stake{Sessions: 1, Claims: 2, Keys: []string{"a", "b"}[:min(2, keys)]}
			},
			Unanswered: func() { c.unanswered.Add(1) },
			Passing:    txn.MayPass,
			Probe:      func(ctx context.Context) { c.probes.Add(1); c.request(ctx) },
			Go:         func(f func(context.Context)) bool { go f(io); return true },
		})
		test(t, c)
		stop()
		synctest.Wait()
	})
}

// request is a request that etcd answers unless it is away.
func (c *client) request(ctx context.Context) {
	var err error
	if c.away.Load() {
		err = errAway
	}
	c.ObserveTxn(ctx, time.Now(), err)
}

// lines returns how often the log has an event.
func (c *client) lines(event string) int { return c.logs.FilterMessage(event).Len() }

// An outage is logged once its patience is over, with what it hits, and once a minute from then on.
// A probe goes on until etcd answers, and that is logged once.
func TestOutage(t *testing.T) {
	t.Parallel()
	follow(t, func(t *testing.T, c *client) {
		began := time.Now()
		defer c.Await("k")()
		c.away.Store(true)
		c.request(t.Context())
		if c.ServedWithin(time.Hour) || c.State().Since != began || c.State().Declared {
			t.Errorf("after one unanswered request: %+v", c.State())
		}
		time.Sleep(patience - time.Nanosecond)
		if n := len(c.logs.All()); n > 0 {
			t.Fatalf("%d lines before the patience is over", n)
		}
		time.Sleep(probeEvery)
		if !c.State().Declared || c.State().Err == nil {
			t.Errorf("in the outage: %+v", c.State())
		}
		time.Sleep(10*time.Minute + 10*probeEvery)
		if n := c.lines("etcd unreachable"); n != 1 {
			t.Fatalf("%d warnings, want 1", n)
		}
		if n := c.lines("etcd still unreachable"); n < 9 || n > 10 {
			t.Errorf("%d reminders in ten minutes", n)
		}
		got := fmt.Sprint(c.logs.All()[0].ContextMap())
		for _, want := range []string{"instance:i", "claims:2", "sessions:1", "keys:[a b]", "waiting:1", "waitingFor:[k]", errAway.Error()} {
			if !strings.Contains(got, want) {
				t.Errorf("the warning %s lacks %q", got, want)
			}
		}
		if n := c.probes.Load(); n < 600 || n > 1300 || c.unanswered.Load() != n+1 {
			t.Errorf("%d probes, %d unanswered requests", n, c.unanswered.Load())
		}
		c.away.Store(false)
		time.Sleep(2 * probeEvery)
		if now := c.State(); now.Declared || !now.Since.IsZero() || now.Err != nil || !c.ServedWithin(2*probeEvery) || !c.EndedWithin(2*probeEvery) {
			t.Errorf("after the outage: %+v", now)
		}
		before := c.probes.Load()
		time.Sleep(time.Hour)
		if n := c.probes.Load(); n != before || c.lines("etcd reachable again") != 1 {
			t.Errorf("%d probes after the end, which is logged %d times", n-before, c.lines("etcd reachable again"))
		}
		if c.EndedWithin(time.Minute) || c.ServedWithin(time.Minute) || !c.AnsweredSince(began) {
			t.Error("what is over an hour ago counts as a minute ago")
		}
	})
}

// A member that hangs while others answer is no outage.
func TestAnsweredMeanwhile(t *testing.T) {
	t.Parallel()
	follow(t, func(t *testing.T, c *client) {
		sent := time.Now()
		time.Sleep(time.Second)
		c.request(t.Context())
		c.Observe(t.Context(), sent, errAway)
		if now := c.State(); !now.Since.IsZero() || c.probes.Load() > 0 {
			t.Errorf("%+v", now)
		}
	})
}

// A connection that flaps for an hour is logged at most once a minute.
func TestFlappingDoesNotFlood(t *testing.T) {
	t.Parallel()
	follow(t, func(t *testing.T, c *client) {
		outages := 0
		for began := time.Now(); time.Since(began) < time.Hour; {
			c.away.Store(true)
			c.request(t.Context())
			time.Sleep(9 * time.Second)
			if c.State().Declared {
				outages++
			}
			c.away.Store(false)
			time.Sleep(5 * time.Second)
		}
		warned, back := c.lines("etcd unreachable"), c.lines("etcd reachable again")
		if outages < 60 || warned < 10 || warned > 60 || back != warned {
			t.Errorf("%d outages, %d warnings, %d lines on recovery", outages, warned, back)
		}
		c.away.Store(true)
		c.request(t.Context())
		time.Sleep(75 * time.Second) // one that lasts is logged, if a little later
		if n := c.lines("etcd unreachable"); n != warned+1 {
			t.Errorf("%d warnings after another outage, want %d", n, warned+1)
		}
	})
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	alive := context.Background()
	left, cancel := context.WithCancel(alive)
	cancel()
	short, cancel := context.WithDeadline(alive, time.Now())
	defer cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		took time.Duration
		err  error
		want answerKind
	}{
		{"answer", alive, 0, nil, gotAnswer},
		{"refusal", alive, 0, rpctypes.ErrPermissionDenied, gotAnswer},
		{"unavailable", alive, 0, errAway, noAnswer},
		{"no leader", alive, 0, rpctypes.ErrNoLeader, noAnswer},
		{"own timeout", alive, 0, context.DeadlineExceeded, noAnswer},
		{"the caller left", left, time.Hour, context.Canceled, notWaited},
		{"the caller had little time", short, 0, context.DeadlineExceeded, notWaited},
		{"the caller had enough time", short, 2 * leastAwait, context.DeadlineExceeded, noAnswer},
	} {
		if got := answer(tt.ctx, time.Now().Add(-tt.took), tt.err); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// An error that can come from the outage names it, once. Nothing is added without one.
func TestExplain(t *testing.T) {
	t.Parallel()
	follow(t, func(t *testing.T, c *client) {
		const away = "; no answer from "
		if err := c.Explain(errAway); err != errAway { //nolint:errorlint // it is to be the same
			t.Errorf("without an outage: %v", err)
		}
		c.away.Store(true)
		c.request(t.Context())
		for _, tt := range []struct {
			err  error
			want bool
		}{
			{errAway, true},
			{fmt.Errorf("call: %w", context.DeadlineExceeded), true},
			{nil, false},
			{context.Canceled, false},
			{fmt.Errorf("%w (%w)", attach.ErrClosed, context.DeadlineExceeded), false},
			{rpctypes.ErrPermissionDenied, false},
		} {
			got := c.Explain(tt.err)
			if named := got != nil && strings.Count(got.Error(), away) == 1; named != tt.want || !errors.Is(got, tt.err) {
				t.Errorf("%v became %v", tt.err, got)
			}
		}
		if err := c.Explain(fmt.Errorf("outer: %w", c.Explain(errAway))); strings.Count(err.Error(), away) != 1 {
			t.Errorf("explained twice: %v", err)
		}
	})
}

// What waits is listed by what it is for, without those that have left. The zero Outage lists, too.
func TestAwait(t *testing.T) {
	t.Parallel()
	var o Outage
	for _, key := range []string{"c", "a", "b", "a"} {
		defer o.Await(key)()
	}
	o.Await("left")()
	n, keys := o.calls.waiting(2)
	if got := fmt.Sprint(n, keys); got != "4 [a b]" {
		t.Error(got)
	}
	if err := o.Explain(errAway); err != errAway { //nolint:errorlint // it is to be the same
		t.Error(err)
	}
}
