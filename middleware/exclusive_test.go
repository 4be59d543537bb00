package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/middleware"
)

func TestExclusiveRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		h := middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{}, etcdclaims.MaxHold(time.Minute))(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			token, ok := fencing.FromContext(r.Context())
			info, err := w.Other.Lookup(r.Context(), "k")
			if !ok || err != nil || info.Fence != token.Fence || token.Key != "k" {
				t.Errorf("token %v, %v; held: %+v, %v", token, ok, info, err)
			}
			if err := fencing.Check(r.Context()); err != nil {
				t.Errorf("Check: %v", err)
			}
			rw.Header().Set("X", "y")
			rw.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(rw, "made")
		}))
		for range 2 {
			rec := get(h, "/")
			if rec.Code != http.StatusCreated || rec.Body.String() != "made" || rec.Header().Get("X") != "y" {
				t.Errorf("got %d %q %v", rec.Code, rec.Body, rec.Header())
			}
			w.Free(t, "k")
		}
	})
}

// With slots, so many requests of a key run at the same time.
func TestExclusiveSlots(t *testing.T) {
	t.Parallel()
	inWorld(t, "slots", func(t *testing.T, w *world) {
		slots := etcdclaims.Slots(2)
		var h http.Handler
		h = middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{}, slots)(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if _, err := w.Other.TryAcquire(r.Context(), "k", slots); err != nil {
				t.Errorf("the second slot: %v", err)
			}
			problem(t, get(h, "/").Result(), 409, "HELD")
		}))
		if rec := get(h, "/"); rec.Code != http.StatusOK {
			t.Errorf("got %d %q", rec.Code, rec.Body)
		}
	})
}

func TestExclusiveRefuses(t *testing.T) {
	t.Parallel()
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("the handler runs") })
	inWorld(t, "held", func(t *testing.T, w *world) {
		claim, err := w.Other.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{0, 5 * sec} {
			began := time.Now()
			rec := get(middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{Wait: wait})(never), "/")
			if took := time.Since(began); took < wait || took > wait+sec {
				t.Errorf("refused after %v, want %v", took, wait)
			}
			p := problem(t, rec.Result(), 409, "HELD")
			if p.Owner != "there" || p.Newest != claim.Fence() || p.Key != "k" || p.Since.IsZero() || p.RetryAfter != sec {
				t.Errorf("got %+v", p)
			}
			if !errors.Is(p, fencing.ErrHeld) {
				t.Errorf("%v is not ErrHeld", p)
			}
		}
	})
	inWorld(t, "key", func(t *testing.T, w *world) {
		for _, key := range []string{"", "a\nb", "\xff", string(make([]byte, 2000))} {
			rec := get(middleware.Exclusive(w.Claims, fixed(key), middleware.Config{})(never), "/")
			problem(t, rec.Result(), 400, "INVALID_KEY")
		}
	})
	inWorld(t, "cut", func(t *testing.T, w *world) {
		w.Host.Cut()
		for _, wait := range []time.Duration{0, 5 * sec, time.Minute} {
			rec := get(middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{Wait: wait})(never), "/")
			p := problem(t, rec.Result(), 503, "UNAVAILABLE")
			if p.RetryAfter != sec {
				t.Errorf("Retry-After: %v", p.RetryAfter)
			}
		}
	})
	inWorld(t, "client gone", func(t *testing.T, w *world) {
		claim, err := w.Other.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*sec)
		defer cancel()
		rec := httptest.NewRecorder()
		began := time.Now()
		middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{Wait: -1})(never).ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if took := time.Since(began); took < 3*sec || took > 4*sec {
			t.Errorf("gave up after %v", took)
		}
		problem(t, rec.Result(), 503, "UNAVAILABLE")
		if err := claim.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(sec)
		w.Free(t, "k") // nobody is left in line
	})
	inWorld(t, "closed", func(t *testing.T, w *world) {
		if err := w.Claims.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		problem(t, get(middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{})(never), "/").Result(), 503, "UNAVAILABLE")
	})
	inWorld(t, "own answer", func(t *testing.T, w *world) {
		if _, err := w.Other.TryAcquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		rec := get(middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{
			Refuse: func(rw http.ResponseWriter, r *http.Request, p *middleware.Problem) {
				var held *etcdclaims.HeldError
				if !errors.As(p.Err, &held) {
					t.Errorf("Err is %v", p.Err)
				}
				p.Owner, p.RetryAfter = "", 1500*time.Millisecond
				p.ServeHTTP(rw, r)
			},
		})(never), "/")
		if p := problem(t, rec.Result(), 409, "HELD"); p.Owner != "" || p.RetryAfter != 2*sec {
			t.Errorf("got %+v", p)
		}
	})
}

// A request that may wait has its turn when the one before it is done.
func TestExclusiveWaits(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		running, most := 0, 0
		handler := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			running++
			most = max(most, running)
			time.Sleep(sec)
			running--
			rw.WriteHeader(http.StatusNoContent)
		})
		done := make(chan int, 8)
		began := time.Now()
		for i := range 8 {
			claims, wait := w.Claims, time.Minute
			if i%2 > 0 {
				claims, wait = w.Other, -1
			}
			h := middleware.Exclusive(claims, fixed("k"), middleware.Config{Wait: wait})(handler)
			go func() { done <- get(h, "/").Code }()
		}
		for range 8 {
			if code := <-done; code != http.StatusNoContent {
				t.Errorf("status %d", code)
			}
		}
		if most != 1 || time.Since(began) > 10*sec {
			t.Errorf("%d at a time, %v in all", most, time.Since(began))
		}
		w.Free(t, "k")
	})
}

// What is lost before anything was sent is answered as that, whatever the handler
// says, and what it was told in time.
func TestExclusiveLostBeforeTheHeader(t *testing.T) {
	t.Parallel()
	for name, lose := range testclaims.Losses {
		inWorld(t, name, func(t *testing.T, w *world) {
			var opts []etcdclaims.AcquireOption
			if name == "max hold" {
				opts = append(opts, etcdclaims.MaxHold(20*sec))
			}
			var refused error
			h := middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{}, opts...)(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				lose(t, w)
				time.Sleep(sec) // it does not look at its context
				if name != "asleep" && (r.Context().Err() == nil || !errors.Is(context.Cause(r.Context()), fencing.ErrLost)) {
					t.Errorf("the context goes on, or ended by %v", context.Cause(r.Context()))
				}
				rw.Header().Set("Etag", `"1"`)
				rw.Header().Set("X-Own", "1")
				rw.WriteHeader(http.StatusOK)
				_, refused = io.WriteString(rw, "all is well")
			}))
			rec := httptest.NewRecorder()
			rec.Header().Set("X-Request-Id", "7")
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", nil))
			p := problem(t, rec.Result(), 409, "CLAIM_LOST")
			if !errors.Is(p, fencing.ErrLost) || p.Fence == 0 || p.Key != "k" {
				t.Errorf("got %+v", p)
			}
			if !errors.Is(refused, fencing.ErrLost) {
				t.Errorf("writing: %v, want ErrLost", refused)
			}
			if h := rec.Header(); h.Get("X-Own") != "" || h.Get("Etag") != "" || h.Get("X-Request-Id") != "7" {
				t.Errorf("header %v", h)
			}
		})
	}
}

// A handler that says nothing has not succeeded either.
func TestExclusiveLostSilently(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		h := middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			w.Revoke(t, "k")
		}))
		problem(t, get(h, "/").Result(), 409, "CLAIM_LOST")
	})
}

// A response that has begun is cut off.
func TestExclusiveLostAfterTheHeader(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(http.ResponseWriter){
		"header": func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusOK) },
		"write":  func(rw http.ResponseWriter) { _, _ = rw.Write([]byte("begun, ")) },
		"string": func(rw http.ResponseWriter) { _, _ = io.WriteString(rw, "begun, ") },
		"flush":  func(rw http.ResponseWriter) { rw.(http.Flusher).Flush() },
		"control": func(rw http.ResponseWriter) {
			if err := http.NewResponseController(rw).Flush(); err != nil {
				panic(err)
			}
		},
	} {
		inWorld(t, name, func(t *testing.T, w *world) {
			h := middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				begin(rw)
				w.Revoke(t, "k")
				<-r.Context().Done()
				if _, err := rw.Write([]byte("ended")); !errors.Is(err, fencing.ErrLost) {
					t.Errorf("writing: %v", err)
				}
			}))
			rec := httptest.NewRecorder()
			defer func() {
				if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
					t.Errorf("panic: %v", p)
				}
				if s := rec.Body.String(); len(s) > len("begun, ") {
					t.Errorf("sent %q", s)
				}
			}()
			h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
			t.Error("no panic")
		})
	}
}

// What is finished in the drain is finished: the claim was held to the end.
func TestExclusiveDrains(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		h := middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{})(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			slow := w.Host.Inject(claimtest.Fault{On: claimtest.KeepAlive, Times: -1, LoseRequest: true})
			<-r.Context().Done()
			slow.Remove()
			_, _ = io.WriteString(rw, "in time")
		}))
		if rec := get(h, "/"); rec.Code != 200 || rec.Body.String() != "in time" {
			t.Errorf("got %d %q", rec.Code, rec.Body)
		}
		w.Free(t, "k")
	})
}

// A handler that goes on after its client has left is a zombie, and its key is not
// another's until its lease has lapsed.
func TestExclusiveIgnoresItsContext(t *testing.T) {
	t.Parallel()
	inWorld(t, "OK", func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		h := middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			cancel()
			time.Sleep(10 * sec) // the drain is 3 s
			if _, err := w.Other.TryAcquire(context.Background(), "k"); !errors.Is(err, etcdclaims.ErrHeld) {
				t.Errorf("another got %v, want ErrHeld", err)
			}
			_, _ = io.WriteString(rw, "late")
		}))
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		problem(t, rec.Result(), 409, "CLAIM_LOST")
		if n := w.Claims.Stats().Zombies; n != 1 {
			t.Errorf("%d zombies", n)
		}
	})
}

// A panic, and Goexit, give the key up and go on.
func TestExclusivePanics(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(){"panic": func() { panic("own") }, "Goexit": runtime.Goexit} {
		inWorld(t, name, func(t *testing.T, w *world) {
			h := middleware.Exclusive(w.Claims, fixed("k"), middleware.Config{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leave() }))
			left := make(chan any)
			go func() {
				defer func() { left <- recover() }()
				get(h, "/")
				t.Error("it returned")
			}()
			if p := <-left; name == "panic" && p != "own" {
				t.Errorf("panic %v", p)
			}
			w.Free(t, "k")
		})
	}
}
