package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// browser finds a Chromium.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no chromium")
	return ""
}

// stage is an etcd, a page that shows it, and a tab of a browser.
type stage struct {
	*testing.T
	etcd   *testetcd.Server
	claims *etcdclaims.Client
	page   *webui.Handler
	url    string // of the page, with its final slash
	ctx    context.Context

	mu     sync.Mutex
	faults []string // what the browser has complained of
}

func permissive(*http.Request, webui.Operation) error { return nil }

func newStage(t *testing.T, cfg webui.Config, opts ...chromedp.ExecAllocatorOption) *stage {
	t.Helper()
	path := browser(t)
	s := &stage{T: t, etcd: testetcd.Start(t, testetcd.NoSync())}
	s.claims = s.client("page")
	handler, err := webui.New(s.claims, cfg)
	s.ok(err)
	s.page = handler
	mux := http.NewServeMux()
	mux.Handle("/ops/claims/", handler)
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		handler.Close()
		server.Close()
	})
	s.url = server.URL + "/ops/claims/"

	opts = append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1180, 760),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(time.Minute)), opts...)
	ctx, free := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, leave := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // it ends with its process, too
		leave()
		free()
	})
	s.ok(chromedp.Listen(ctx, s.listen))
	s.ctx = ctx
	call(s, log.Enable, cdp.Empty{})
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, fault := range s.faults {
			t.Error("the browser says: ", fault)
		}
	})
	return s
}

// listen notes exceptions, violations of the policy, and dialogs.
func (s *stage) listen(event any) {
	fault := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		fault = fmt.Sprint(e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && !strings.Contains(e.Entry.Text, "net::ERR") {
			fault = e.Entry.Text
		}
	case *page.EventJavascriptDialogOpening:
		fault = "a dialog: " + e.Message
	}
	if fault != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = append(s.faults, fault)
	}
}

func (s *stage) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stage) client(owner string) *etcdclaims.Client {
	return claimtest.NewClient(s.T, testclaims.EtcdFunc(s.etcd.Client), etcdclaims.Config{Owner: owner})
}

func (s *stage) claim(c *etcdclaims.Client, key string) *etcdclaims.Claim {
	s.Helper()
	claim, err := c.TryAcquire(s.Context(), key)
	s.ok(err)
	return claim
}

// waits makes a client wait for a key. The claim that it gets comes through the channel.
func (s *stage) waits(c *etcdclaims.Client, key string) <-chan *etcdclaims.Claim {
	s.Helper()
	before, err := c.Lookup(s.Context(), key)
	s.ok(err)
	got := make(chan *etcdclaims.Claim, 1)
	go func() {
		claim, err := c.Acquire(s.Context(), key)
		if err == nil {
			got <- claim
		}
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		now, err := c.Lookup(s.Context(), key)
		s.ok(err)
		if now.Waiting > before.Waiting {
			return got
		}
		if time.Now().After(deadline) {
			s.Fatal("it does not wait in line")
		}
	}
}

// patience is how long one action may take.
const patience = 30 * time.Second

func (s *stage) do(actions ...chromedp.Action[chromedp.Void]) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	s.ok(chromedp.Do(ctx, actions...))
}

// call calls a method of the browser's protocol.
func call[P, R any](s *stage, cmd cdp.Command[P, R], params P) {
	s.Helper()
	_, err := chromedp.Call(s.ctx, cmd, params)
	s.ok(err)
}

// evaluate returns the value of an expression in the tab.
func evaluate[T any](s *stage, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// isLive is true once the tab is kept up to date.
const isLive = `document.getElementById("live").textContent === "live"`

// opens opens a page and waits until it is live.
func (s *stage) opens(where string) {
	s.Helper()
	s.do(chromedp.Navigate(s.url + where))
	s.until(isLive, 10*time.Second)
}

// until waits until an expression is true in the tab.
func (s *stage) until(expression string, within time.Duration) {
	s.Helper()
	deadline := time.Now().Add(within)
	for {
		holds, err := evaluate[bool](s, expression) // it fails while the tab moves to another page
		if err == nil && holds {
			return
		}
		if time.Now().After(deadline) {
			text, _ := evaluate[string](s, `document.body.innerText`)
			s.Fatalf("not true: %s (%v); the page is:\n%s", expression, err, text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// shows waits until the page has a text.
func (s *stage) shows(text string, within time.Duration) {
	s.Helper()
	quoted, err := json.Marshal(text)
	s.ok(err)
	s.until("document.body.innerText.includes("+string(quoted)+")", within)
}
