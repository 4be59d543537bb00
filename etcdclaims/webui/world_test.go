package webui_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

// world is an etcd, a client that shows what is in it, and the page, in virtual time.
type world struct {
	*testing.T
	server *claimtest.Server
	host   *claimtest.Host // of the page
	claims *etcdclaims.Client
	page   *webui.Handler
}

func virtually(t *testing.T, cfg webui.Config, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, server: claimtest.Start(t)}
		w.host = w.server.Host(t)
		w.claims = claimtest.NewClient(t, w.host, etcdclaims.Config{Owner: "page"})
		page, err := webui.New(w.claims, cfg)
		w.ok(err)
		w.page = page
		defer page.Close() // before the client
		test(w)
	})
}

// permissive lets everybody do everything.
func permissive(*http.Request, webui.Operation) error { return nil }

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// client returns a client of a process beside the page's.
func (w *world) client(owner string) (*etcdclaims.Client, *claimtest.Host) {
	w.Helper()
	host := w.server.Host(w.T)
	return claimtest.NewClient(w.T, host, etcdclaims.Config{Owner: owner}), host
}

func (w *world) claim(c *etcdclaims.Client, key string) *etcdclaims.Claim {
	w.Helper()
	claim, err := c.TryAcquire(w.Context(), key)
	w.ok(err)
	return claim
}

// waits makes a client wait in line for a key.
func (w *world) waits(c *etcdclaims.Client, key string) {
	w.Helper()
	before, err := c.Lookup(w.Context(), key)
	w.ok(err)
	go func() {
		_, err := c.Acquire(w.Context(), key)
		if err != nil && w.Context().Err() == nil {
			w.Errorf("acquire %q: %v", key, err)
		}
	}()
	w.eventually("it waits in line", func() bool {
		i, err := c.Lookup(w.Context(), key)
		return err == nil && i.Waiting > before.Waiting
	})
}

func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.Fatalf("it never comes true that %s", what)
}

// roles are those of the parts of tables, which no test here is about.
var roles = regexp.MustCompile(` role="(table|rowgroup|row|columnheader|cell)"`)

// spaces are those that a browser shows as one.
var spaces = regexp.MustCompile(`[ \t\n]+`)

// get asks for a page, and returns its status and text.
func (w *world) get(where string) (int, string) {
	w.Helper()
	answer := httptest.NewRecorder()
	w.page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/ops/claims/"+where, nil))
	return answer.Code, spaces.ReplaceAllString(roles.ReplaceAllString(answer.Body.String(), ""), " ")
}

// shows asks for a page, and wants it to have texts.
func (w *world) shows(where string, texts ...string) string {
	w.Helper()
	code, body := w.get(where)
	if code != http.StatusOK {
		w.Fatalf("%s: status %d: %s", where, code, body)
	}
	for _, text := range texts {
		if !strings.Contains(body, text) {
			w.Errorf("%s does not show %q:\n%s", where, text, body)
		}
	}
	return body
}

// post sends a form.
func (w *world) post(form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	w.Helper()
	r := httptest.NewRequest(http.MethodPost, "/ops/claims/do", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, f := range change {
		f(r)
	}
	answer := httptest.NewRecorder()
	w.page.ServeHTTP(answer, r)
	return answer
}

// form is a form of names and values in turn.
func form(action webui.Action, pairs ...string) url.Values {
	values := url.Values{"action": {string(action)}}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return values
}

// stream is a tab.
type stream struct {
	http.ResponseWriter // nil
	header              http.Header
	pipe                *io.PipeWriter
	events              chan string
	code                int
	leave               context.CancelFunc
	left                chan struct{}
}

func (s *stream) Header() http.Header         { return s.header }
func (s *stream) WriteHeader(code int)        { s.code = code }
func (s *stream) Flush()                      {}
func (s *stream) Write(b []byte) (int, error) { return s.pipe.Write(b) }

// opens opens a tab.
func (w *world) opens(where string) *stream {
	ctx, cancel := context.WithCancel(w.Context())
	in, out := io.Pipe()
	s := &stream{header: http.Header{}, pipe: out, events: make(chan string, 10_000), leave: cancel, left: make(chan struct{})}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := in.Read(buf)
			if err != nil {
				return
			}
			for line := range strings.Lines(string(buf[:n])) {
				if name, ok := strings.CutPrefix(line, "event: "); ok {
					s.events <- strings.TrimSpace(name)
				}
			}
		}
	}()
	go func() {
		defer close(s.left)
		defer out.Close()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/ops/claims/events?page="+url.QueryEscape(where), nil)
		w.page.ServeHTTP(s, r)
	}()
	w.Cleanup(func() {
		cancel()
		<-s.left
	})
	return s
}

// next returns the name of the next event, or "" if none comes in time.
func (s *stream) next(within time.Duration) string {
	select {
	case e := <-s.events:
		return e
	case <-time.After(within):
		return ""
	}
}

// drain forgets the events so far.
func (s *stream) drain() (n int) {
	for {
		select {
		case <-s.events:
			n++
		default:
			return n
		}
	}
}

// busy fills etcd with some of everything.
func (w *world) busy() {
	w.Helper()
	ctx := w.Context()
	api, _ := w.client("api-7")
	worker, _ := w.client("worker-3")
	w.claim(api, "orders/42")
	w.waits(worker, "orders/42")
	err := testwork.Of(worker).TryRun(ctx, "invoices/1", func(context.Context, *work.Work) error {
		return etcdclaims.Permanent(errors.New("no such customer"))
	})
	if err == nil {
		w.Fatal("the work did not fail")
	}
	s, err := sched.New(api, sched.Config{Group: "billing"})
	w.ok(err)
	w.ok(s.Add(sched.Job{Name: "nightly", Schedule: calendar.Must(calendar.Cron("30 2 * * *")), Handler: func(context.Context, sched.Tick) error { return nil }}))
	w.ok(s.Add(sched.Job{Name: "often", Schedule: calendar.Must(calendar.Every(time.Minute, 0)), Handler: func(context.Context, sched.Tick) error { return errors.New("full") }}))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	w.Cleanup(func() {
		stop()
		w.ok(<-ended)
	})
	q, err := queue.New(worker, queue.Config{Name: "mails"})
	w.ok(err)
	w.Cleanup(func() { w.ok(q.Close(context.Background())) })
	for i := range 3 {
		_, err := q.Enqueue(ctx, queue.NewItem([]byte("secret payload"), queue.ID(fmt.Sprint("mail-", i))))
		w.ok(err)
	}
	b, err := q.TryClaim(ctx, 1)
	w.ok(err)
	w.ok(b.Deliveries[0].Discard(ctx, "bounced"))
	time.Sleep(3 * time.Minute)
}
