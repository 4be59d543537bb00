package gates

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/middleware"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

type idempotencyVector struct {
	// Headers are the values of the request's Idempotency-Key headers.
	Headers []string `json:"headers"`
	Want    outcome  `json:"want"`
}

// TestIdempotencyKeys shows which values of the Idempotency-Key header are accepted.
func TestIdempotencyKeys(t *testing.T) {
	// Without etcd a request with a key that is accepted is refused as unavailable.
	once := middleware.Once(nil, func(*http.Request) string { return "vectors" }, middleware.OnceConfig{})
	handler := once(http.NotFoundHandler())
	var vectors []idempotencyVector
	for _, headers := range [][]string{
		{`"8e03978e-40d5-43e8-bc93-6894a57f9324"`},
		{`"order 42"`},
		{`"say \"hi\""`},
		{` "a" `},
		{`"a";v=1`},
		{`"` + strings.Repeat("k", 255) + `"`},
		{},
		{``},
		{`""`},
		{`8e03978e-40d5-43e8-bc93-6894a57f9324`},
		{`"a`},
		{`"a" b`},
		{`"é"`},
		{`5`},
		{`%"a"`},
		{`"a"`, `"b"`},
		{`"a", "b"`},
		{`"` + strings.Repeat("k", 256) + `"`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.Header["Idempotency-Key"] = headers
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		v := idempotencyVector{Headers: headers}
		if w.Code != http.StatusServiceUnavailable {
			var problem struct{ Type string }
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
				t.Fatal(err)
			}
			_, v.Want.Reason, _ = strings.Cut(problem.Type, "#")
		}
		vectors = append(vectors, v)
	}
	stored(t, "idempotency", vectors)
}

type tickVector struct {
	Group   string    `json:"group"`
	Job     string    `json:"job"`
	Nominal time.Time `json:"nominal"`
	ID      string    `json:"id"`
}

// TestTicks shows the identities of scheduled ticks, by which a receiver recognizes a
// tick that it has seen.
func TestTicks(t *testing.T) {
	var vectors []tickVector
	synctest.Test(t, func(t *testing.T) {
		claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := sched.New(claims, sched.Config{Group: "billing"})
		if err != nil {
			t.Fatal(err)
		}
		ticks := make(chan sched.Tick, 10)
		for name, every := range map[string]time.Duration{"invoices": 24 * time.Hour, "pings/eu": 6 * time.Hour, "früh": 12*time.Hour + 500*time.Millisecond} {
			err := s.Add(sched.Job{Name: name, Schedule: calendar.Must(calendar.Every(every, 0)), Handler: func(_ context.Context, tick sched.Tick) error {
				if len(ticks) < cap(ticks) {
					ticks <- tick
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Hour+time.Minute)
		defer cancel()
		_ = s.Run(ctx)
		close(ticks)
		for tick := range ticks {
			vectors = append(vectors, tickVector{tick.Group, tick.Job, tick.Nominal, tick.ID()})
		}
	})
	slices.SortFunc(vectors, func(a, b tickVector) int { return strings.Compare(a.ID, b.ID) })
	stored(t, "ticks", vectors)
}
