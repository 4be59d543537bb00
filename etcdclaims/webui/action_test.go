package webui_test

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestActions(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	cfg := webui.Config{Access: permissive, Logger: zap.New(core), User: func(*http.Request) string { return "alice" }}
	virtually(t, cfg, func(w *world) {
		w.busy()
		ctx := w.Context()
		changes := 1
		does := func(form url.Values, back string) {
			w.Helper()
			logs.TakeAll()
			before := w.actions()
			answer := w.post(form)
			if answer.Code != http.StatusSeeOther || back+"&done="+form.Get("action") != locationOf(answer) {
				w.Fatalf("%v: %d, %v: %s", form, answer.Code, answer.Header(), answer.Body)
			}
			entries := logs.FilterMessage("operation carried out").All()
			if len(entries) != 1 || entries[0].ContextMap()["user"] != "alice" || entries[0].ContextMap()["action"] != form.Get("action") {
				w.Errorf("%v: the log has %v", form, entries)
			}
			all := w.actions()
			if len(all) != len(before)+changes || all[0].Who != "alice" || all[0].Why != form.Get("reason") {
				w.Errorf("%v: it leaves %+v", form, all)
			}
		}
		i, err := w.claims.Lookup(ctx, "orders/42")
		w.ok(err)
		does(form("release", "key", "orders/42", "fence", strconv.FormatInt(i.Fence, 10), "reason", "stuck"), "key?key=orders%2F42")
		w.shows("key?key=orders/42&done=release", "The term was ended.", "alice: stuck", "worker-3")
		does(form("retry-work", "key", "invoices/1"), "key?key=invoices%2F1")
		does(form("forget-work", "key", "invoices/1", "state", "free"), "key?key=invoices%2F1")
		if _, ok, err := testwork.Of(w.claims).Record(ctx, "invoices/1"); ok || err != nil {
			w.Errorf("the record is there: %v", err)
		}

		job := []string{"group", "billing", "job", "nightly", "reason", "month end"}
		s, err := sched.New(w.claims, sched.Config{Group: "billing"})
		w.ok(err)
		does(form("pause-job", append(job, "for", " 2h ")...), "job?group=billing&job=nightly")
		w.shows("job?group=billing&job=nightly", "paused", " until 2000-01-01 02:0", "alice: month end")
		does(form("pause-job", append(job, "for", "")...), "job?group=billing&job=nightly")
		if info, err := s.Inspect(ctx, "nightly"); err != nil || info.Paused == nil || !info.Paused.Until.IsZero() {
			w.Errorf("not until it is resumed: %+v, %v", info.Paused, err)
		}
		does(form("resume-job", job...), "job?group=billing&job=nightly")
		does(form("run-job", job...), "job?group=billing&job=nightly")
		time.Sleep(5 * time.Second)
		if info, err := s.Inspect(ctx, "nightly"); err != nil || info.Paused != nil || info.Last == nil {
			w.Errorf("it did not run: %+v, %v", info, err)
		}
		does(form("cancel-job", job...), "job?group=billing&job=nightly")

		q, err := queue.Open(ctx, w.claims, "mails")
		w.ok(err)
		defer q.Close(ctx)
		count := func(dead, ready int) {
			w.Helper()
			if st, err := q.Stats(ctx); err != nil || st.Dead != dead || st.Ready != ready {
				w.Errorf("%+v, %v; want %d dead, %d ready", st, err, dead, ready)
			}
		}
		does(form("pause-queue", "queue", "mails", "for", "30m"), "queue?queue=mails")
		w.shows("queue?queue=mails", "Paused by", " until 2000-01-01 00:3")
		does(form("resume-queue", "queue", "mails"), "queue?queue=mails")
		count(1, 2)
		does(form("redrive", "queue", "mails", "item", "mail-0"), "item?id=mail-0&queue=mails")
		count(0, 3)
		b, err := q.TryClaim(ctx, 3)
		w.ok(err)
		for _, l := range b.Deliveries {
			w.ok(l.Discard(ctx, "no"))
		}
		changes = 0
		does(form("purge", "queue", "mails", "before", time.Now().Add(-time.Minute).Format(time.RFC3339Nano)), "queue?queue=mails")
		changes = 1
		count(3, 0) // they died after the person looked
		seen := regexp.MustCompile(`data-id="purge-([^"]+)".*name="before" value="([^"]+)"`)
		time.Sleep(5 * time.Second) // so that the list is read again
		found := seen.FindStringSubmatch(w.shows("queue?queue=mails"))
		if len(found) != 3 || found[1] != found[2] {
			w.Fatalf("the form to delete dead letters is %q", found)
		}
		if seen.MatchString(w.shows("queue?queue=mails&list=waiting")) {
			w.Error("dead letters can be deleted where they are not shown")
		}
		_, err = q.Enqueue(ctx, queue.NewItem(nil, queue.ID("late")))
		w.ok(err)
		b, err = q.TryClaim(ctx, 1)
		w.ok(err)
		w.ok(b.Deliveries[0].Discard(ctx, "no"))
		does(form("purge", "queue", "mails", "before", html.UnescapeString(found[2])), "queue?queue=mails")
		count(1, 0) // those that were shown are gone
		w.ok(q.Redrive(ctx, "late"))
		count(0, 1)
		for i := range 2 {
			_, err = q.Enqueue(ctx, queue.NewItem(nil, queue.ID(fmt.Sprint("again-", i))))
			w.ok(err)
		}
		b, err = q.TryClaim(ctx, 3)
		w.ok(err)
		for _, l := range b.Deliveries {
			w.ok(l.Discard(ctx, "no"))
		}
		does(form("redrive-all", "queue", "mails"), "queue?queue=mails")
		count(0, 3)
		time.Sleep(5 * time.Second)
		w.shows("audit", "alice", "queue dead redrive-all mails", "items: 3", `href="job?group=billing&amp;job=nightly"`, "month end")
	})
}

// actions returns what operators did, newest first.
func (w *world) actions() []admin.Action {
	w.Helper()
	all, err := admin.Actions(w.Context(), w.claims, 1000, time.Time{})
	w.ok(err)
	return all
}

// locationOf returns where an answer leads, what was done last.
func locationOf(answer *httptest.ResponseRecorder) string {
	page, query, _ := strings.Cut(answer.Header().Get("Location"), "?")
	values, _ := url.ParseQuery(query)
	done := values.Get("done")
	values.Del("done")
	return page + "?" + values.Encode() + "&done=" + done
}

// The page knows the actions that the comment of Action lists, and no others.
func TestActionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("config.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed []webui.Action
	for _, row := range regexp.MustCompile(`(?m)^//\t([a-z-]+(?:, [a-z-]+)*) `).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(row[1], ",") {
			listed = append(listed, webui.Action(strings.TrimSpace(name)))
		}
	}
	slices.Sort(listed)
	if known := slices.Sorted(webui.Actions()); !slices.Equal(listed, known) {
		t.Errorf("documented are %q, the page carries out %q", listed, known)
	}
}

func TestActionsThatFail(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	access := func(_ *http.Request, op webui.Operation) error {
		if op.Action == "" || op.Action == "no" || op.Action == "Release" {
			t.Errorf("access to the unknown action %q was asked for", op.Action)
		}
		if op.Action == "release" && op.Queue+op.Group+op.Job != "" {
			t.Errorf("access to a release was asked for by fields without effect: %+v", op)
		}
		return nil
	}
	virtually(t, webui.Config{Access: access, Logger: zap.New(core)}, func(w *world) {
		claim := w.claim(w.claims, "k")
		fence := strconv.FormatInt(claim.Fence(), 10)
		for _, tt := range []struct {
			form url.Values
			code int
		}{
			{form("no"), 400},
			{form(""), 400},
			{form("Release", "key", "k", "fence", fence, "reason", "r"), 400},
			{form(webui.ActionView), 400},
			{form("release", "key", "k", "fence", fence), 400}, // no reason
			{form("release", "key", "k", "fence", "9223372036854775808", "reason", "r"), 400},
			{form("release", "key", "k", "fence", "-1", "reason", "r"), 400},
			{form("release", "key", "k", "fence", "1", "reason", "r", "queue", "q", "group", "g", "job", "j"), 409}, // another term
			{form("release", "key", "k", "fence", fence, "reason", strings.Repeat("r", 501)), 400},
			{form("release", "key", "k", "fence", fence, "reason", strings.Repeat("r", 20<<10)), 400},
			{form("release", "key", "\x00", "fence", fence, "reason", "r"), 400},
			{form("retry-work", "key", "none"), 404},
			{form("pause-job", "group", "g", "job", "none"), 404},
			{form("pause-job", "group", "a/b", "job", "none"), 400},
			{form("pause-queue", "queue", "none"), 404},
			{form("pause-queue", "queue", "none", "for", "1h"), 404},
			{form("pause-queue", "queue", "none", "for", "0s"), 400},
			{form("pause-job", "group", "g", "job", "none", "for", "2 days"), 400},
			{form("pause-job", "group", "g", "job", "none", "for", "9000h"), 400},
			{form("purge", "queue", "none", "before", time.Now().Add(time.Hour).Format(time.RFC3339Nano)), 400},
		} {
			if answer := w.post(tt.form); answer.Code != tt.code {
				w.Errorf("%.100v: status %d, want %d", tt.form, answer.Code, tt.code)
			}
		}
		w.ok(claim.Check())
		if n := logs.FilterMessage("operation carried out").Len(); n > 0 {
			w.Errorf("%d operations were carried out", n)
		}
		if answer := httpGet(w.page, "/do"); answer.Code != http.StatusMethodNotAllowed {
			w.Errorf("GET: status %d", answer.Code)
		}
		r := w.post(form("release"), func(r *http.Request) { r.URL.Path = "/claims" })
		if r.Code != http.StatusMethodNotAllowed {
			w.Errorf("POST of a page: status %d", r.Code)
		}
	})
}

func TestAccess(t *testing.T) {
	releases := func(w *world, change func(*http.Request)) (code int, held bool) {
		claim := w.claim(w.claims, "k")
		defer claim.Release(w.Context())
		code = w.post(form("release", "key", "k", "fence", strconv.FormatInt(claim.Fence(), 10), "reason", "r"), change).Code
		i, err := w.claims.Lookup(w.Context(), "k")
		w.ok(err)
		return code, i.Held
	}
	nothing := func(*http.Request) {}

	t.Run("read-only", func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		virtually(t, webui.Config{Logger: zap.New(core)}, func(w *world) {
			if code, held := releases(w, nothing); code != http.StatusForbidden || !held {
				w.Errorf("status %d, held %v", code, held)
			}
			if logs.FilterMessage("operation denied").Len() != 1 {
				w.Errorf("the log has %v", logs.All())
			}
			w.claim(w.claims, "l")
			if strings.Contains(w.shows("key?key=l", ">held<"), "<form") {
				w.Error("a form is shown")
			}
		})
	})
	t.Run("per action and key", func(t *testing.T) {
		access := func(_ *http.Request, op webui.Operation) error {
			if op.Action == webui.ActionView && op.Page != "health" || op.Action == "release" && op.Key == "k" && op.Fence > 0 {
				return nil
			}
			return errors.New("not for <you>")
		}
		virtually(t, webui.Config{Access: access}, func(w *world) {
			if code, held := releases(w, nothing); code != http.StatusSeeOther || held {
				w.Errorf("status %d, held %v", code, held)
			}
			if code, body := w.get("health"); code != http.StatusForbidden || !strings.Contains(body, "not for &lt;you&gt;") {
				w.Errorf("status %d: %s", code, body)
			}
			if code, _ := w.get("events?page=health"); code != http.StatusForbidden {
				w.Errorf("events: status %d", code)
			}
			w.claim(w.claims, "l")
			if strings.Contains(w.shows("key?key=l"), "<form") {
				w.Error("a form is shown")
			}
		})
	})
	t.Run("of another site", func(t *testing.T) {
		virtually(t, webui.Config{Access: permissive, TrustedOrigins: []string{"https://ops.example.com"}}, func(w *world) {
			for _, tt := range []struct {
				name   string
				change func(*http.Request)
				code   int
			}{
				{"cross-site", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
				{"same-site", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
				{"origin", func(r *http.Request) {
					r.Header.Del("Sec-Fetch-Site")
					r.Header.Set("Origin", "https://evil.example.com")
				}, 403},
				{"trusted", func(r *http.Request) {
					r.Header.Set("Sec-Fetch-Site", "cross-site")
					r.Header.Set("Origin", "https://ops.example.com")
				}, 303},
				{"no browser", func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, 303},
			} {
				if code, held := releases(w, tt.change); code != tt.code || held != (tt.code == 403) {
					w.Errorf("%s: status %d, held %v", tt.name, code, held)
				}
			}
		})
	})
	t.Run("redaction", func(t *testing.T) {
		redact := func(f webui.Field, value string) string { return "<" + string(f) + ">" }
		virtually(t, webui.Config{Redact: redact}, func(w *world) {
			w.busy()
			c := w.claim(w.claims, "k")
			w.ok(c.Note(w.Context(), []byte("customer 17")))
			w.ok(admin.Resize(admin.As(w.Context(), "anna", "customer 17"), w.claims, "slots", 2))
			w.shows("audit", "anna", "&lt;note&gt;")
			for _, where := range []string{"audit", "key?key=k", "key?key=invoices/1", "work", "item?queue=mails&id=mail-0", "queue?queue=mails", "job?group=billing&job=often"} {
				body := w.shows(where)
				for _, secret := range []string{"customer", "bounced", "full", "payload<"} {
					if strings.Contains(body, secret) {
						w.Errorf("%s shows %q", where, secret)
					}
				}
			}
			w.shows("key?key=k", "&lt;note&gt;")
			w.shows("item?queue=mails&id=mail-0", "&lt;payload&gt;", "&lt;error&gt;")
		})
	})
}
