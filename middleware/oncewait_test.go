package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testetcd/deafness"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
)

// made answers after a while.
func made(after time.Duration) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		time.Sleep(after)
		_, _ = io.WriteString(rw, "made")
	})
}

// Repeats that wait for one request get its response together, by few requests to etcd.
func TestOnceAnswersAllRepeatsTogether(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		const repeats, rtt = 300, 20 * time.Millisecond
		for _, host := range []*claimtest.Host{w.Host, w.Near} {
			host.Inject(claimtest.Fault{Times: -1, DelayRequest: rtt})
		}
		began := time.Now()
		var all sync.WaitGroup
		for i := range repeats {
			works := []*etcdclaims.Client{w.Claims, w.Other}[i%2]
			all.Go(func() {
				resp := post(middleware.Once(testwork.Of(works), fixed("s"), middleware.OnceConfig{Wait: 3 * sec})(made(sec)), `"a"`, "/", "")
				if resp.StatusCode != http.StatusOK || read(t, resp) != "made" {
					t.Errorf("repeat %d: %d", i, resp.StatusCode)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > sec+10*rtt {
			t.Errorf("the last was answered after %v", took)
		}
		if n := w.Claims.Stats().Requests + w.Other.Stats().Requests; n > 40 {
			t.Errorf("%d requests", n)
		}
	})
}

// Before a repeat is refused after its Wait the record is read: word of it can be lost.
func TestOnceReadsTheRecordBeforeItRefuses(t *testing.T) {
	t.Parallel()
	inWorld(t, "Once", func(t *testing.T, w *world) {
		w.Near.Inject(deafness.Kinds()[deafness.EveryEvent])
		first := middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(made(3 * sec))
		done := make(chan *http.Response)
		go func() { done <- post(first, `"a"`, "/", "") }()
		time.Sleep(sec)
		began := time.Now()
		there := middleware.Once(testwork.Of(w.Other), fixed("s"), middleware.OnceConfig{Wait: 3 * sec})(made(0))
		resp := post(there, `"a"`, "/", "")
		if read(t, resp) != "made" || resp.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%d after %v", resp.StatusCode, time.Since(began))
		}
		<-done
	})
	inWorld(t, "FuncOnce", func(t *testing.T, w *world) {
		w.Near.Inject(deafness.Kinds()[deafness.EveryEvent])
		slow := func(context.Context, string) (string, error) { time.Sleep(3 * sec); return "made", nil }
		key := func(s string) string { return s }
		done := make(chan error)
		go func() {
			_, err := middleware.FuncOnce(testwork.Of(w.Claims), key, slow, middleware.FuncConfig{})(context.Background(), "a")
			done <- err
		}()
		time.Sleep(sec)
		out, err := middleware.FuncOnce(testwork.Of(w.Other), key, slow, middleware.FuncConfig{Wait: 3 * sec})(context.Background(), "a")
		if out != "made" || !errors.Is(err, middleware.ErrDone) {
			t.Errorf("got %q, %v", out, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	inWorld(t, "neither done nor over", func(t *testing.T, w *world) {
		done := make(chan *http.Response)
		go func() {
			done <- post(middleware.Once(testwork.Of(w.Claims), fixed("s"), middleware.OnceConfig{})(made(30*sec)), `"a"`, "/", "")
		}()
		time.Sleep(sec)
		began := time.Now()
		there := middleware.Once(testwork.Of(w.Other), fixed("s"), middleware.OnceConfig{Wait: 3 * sec})(made(0))
		p := problem(t, post(there, `"a"`, "/", ""), 409, "HELD")
		if took := time.Since(began); p.Owner != "here" || took > 4*sec {
			t.Errorf("after %v: %+v", took, p)
		}
		began = time.Now()
		w.Near.Cut()
		problem(t, post(there, `"a"`, "/", ""), 503, "UNAVAILABLE")
		w.Near.Heal()
		if took := time.Since(began); took > 10*sec {
			t.Errorf("refused after %v", took)
		}
		<-done
	})
}

// A body that is too large by its Content-Length is refused before it is asked for.
func TestOnceDoesNotAskForABodyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, start func(h func(s *site) http.Handler) *site) {
		s := start(func(s *site) http.Handler {
			return middleware.Once(testwork.Of(s.claims), fixed("s"), middleware.OnceConfig{MaxBody: 10})(&orders{})
		})
		s.client.Transport.(*http.Transport).ExpectContinueTimeout = 10 * time.Second
		for body, want := range map[string]int{"tea": http.StatusCreated, strings.Repeat("x", 11): http.StatusRequestEntityTooLarge} {
			asked := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { asked = true }})
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", `"a"`)
			r.Header.Set("Expect", "100-continue")
			resp, err := s.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want || asked != (want == http.StatusCreated) {
				t.Errorf("%d bytes: status %d, body asked for: %v", len(body), resp.StatusCode, asked)
			}
		}
	})
}
