package suspicion

import (
	"fmt"
	"testing"
	"time"
)

func newPending() *pending {
	return &pending{standing: make(map[string]*question), asked: make(map[string]time.Time)}
}

func revisions(b *batch) (all []int64) {
	if b != nil {
		for _, q := range b.some {
			all = append(all, q.rev)
		}
	}
	return all
}

// taken checks which questions are answered, and the wait after that.
func taken(tb testing.TB, p *pending, now time.Time, want string, wait time.Duration) *batch {
	tb.Helper()
	b, d := p.take(now, 2)
	if got := fmt.Sprint(revisions(b)); got != want || d != wait {
		tb.Errorf("answered %s, next after %v; want %s and %v", got, d, want, wait)
	}
	return b
}

func noPause(int) time.Duration { return 0 }

func TestOldestQuestionsFirst(t *testing.T) {
	t.Parallel()
	p, now := newPending(), time.Now()
	taken(t, p, now, "[]", -1)
	for i, rev := range []int64{9, 7, 8} {
		p.add(fmt.Sprint(i), rev, now)
	}
	taken(t, p, now, "[7 8]", 0)
	taken(t, p, now, "[9]", 150*ms)
	p.sending = mostSending
	p.add("3", 10, now)
	taken(t, p, now, "[]", longestLook)
}

// becomes notes what became of a request.
func becomes(r reply) func(p *pending, b *batch, now time.Time) {
	return func(p *pending, b *batch, now time.Time) { p.sent(b, r, now, 1*ms, noPause) }
}

// A question is answered until the answer is known to have come, and no more once it is gone.
func TestUntilAnswered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		then func(p *pending, b *batch, now time.Time)
		want string
		wait time.Duration
	}{
		"arrived":      {becomes(arrived), "[]", -1},
		"denied":       {becomes(denied), "[]", -1},
		"gone":         {func(p *pending, _ *batch, _ time.Time) { p.remove("a") }, "[]", -1},
		"lost":         {becomes(lost), "[5]", 300 * ms},
		"not returned": {func(*pending, *batch, time.Time) {}, "[5]", 150 * ms},
		"asked anew": {func(p *pending, b *batch, now time.Time) {
			p.add("a", 6, now)
			p.sent(b, arrived, now, 1*ms, noPause)
		}, "[6]", 150 * ms},
		"heard of twice": {func(p *pending, b *batch, now time.Time) {
			p.sent(b, arrived, now, 1*ms, noPause)
			p.add("a", 5, now)
		}, "[5]", 150 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, now := newPending(), time.Now()
			p.add("a", 5, now)
			b := taken(t, p, now, "[5]", 150*ms)
			now = now.Add(150 * ms)
			tt.then(p, b, now)
			taken(t, p, now, tt.want, tt.wait)
		})
	}
}

// The more clients ask, the longer it is between two requests, but that grows slowly. Clients
// that ask no more do not count.
func TestPaceOfAnswers(t *testing.T) {
	t.Parallel()
	p, now := newPending(), time.Now()
	var paces []time.Duration
	round := func(clients int) {
		for i := range clients {
			p.add(fmt.Sprint(i), int64(len(paces)*100+i), now)
		}
		p.take(now, 100)
		paces = append(paces, p.pace.Round(ms))
		now = p.next
	}
	for range 5 {
		round(10)
	}
	now = now.Add(askedOfLate + 1)
	round(1)
	if got, want := fmt.Sprint(paces), "[50ms 75ms 113ms 169ms 250ms 25ms]"; got != want {
		t.Errorf("%s between two requests, want %s", got, want)
	}
}

// However late the replies are, the next question is answered at once if the answers came.
// Those whose answers have not come are few, and each ends once.
func TestLateRepliesHoldUpNothing(t *testing.T) {
	t.Parallel()
	p, now := newPending(), time.Now()
	var late []*batch
	for rev := range int64(3 * mostSending) {
		p.add("a", rev, now)
		late = append(late, taken(t, p, now, fmt.Sprintf("[%d]", rev), 150*ms))
		if rev%2 == 0 {
			p.remove("a")
		}
		now = p.next
	}
	p.remove("a")
	p.add("a", 100, now)
	for i := range mostSending + 1 {
		b, _ := p.take(now, 1)
		if (b != nil) != (i < mostSending) {
			t.Fatalf("request %d: %v", i, revisions(b))
		}
		now = now.Add(150 * ms) // until it is answered again
	}
	for _, b := range late {
		p.sent(b, lost, now, 1000*ms, noPause)
	}
	if p.sending != mostSending {
		t.Errorf("%d requests under way, want %d", p.sending, mostSending)
	}
}
