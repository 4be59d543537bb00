package webui_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

func TestPages(t *testing.T) {
	virtually(t, webui.Config{Title: "production", Refusals: new(webui.Refusals)}, func(w *world) {
		w.busy()
		w.shows("", "production", "of 2 jobs overdue", "<b>1</b> callers in line", "<b>1</b> dead letters", "<b>1</b> work orphaned or dead")
		w.shows("claims", "orders/42", "api-7", "sched/billing/owner")
		w.shows("claims?prefix=orders/", "1–1 of 1 claim")
		w.shows("claims?text=ders", "orders/42", "1–1 of 1 claim")
		w.shows("claims?text=pi-7&prefix=o", "orders/42", "1–1 of 1 claim", `value="pi-7"`)
		w.shows("claims?text=nobody", "No key is held that is selected above")
		w.shows("key?key=orders/42", "api-7", "worker-3", "If it died now", "<svg", "Terms")
		w.shows("key?key=invoices/1", "dead", "no such customer")
		w.shows("key?key=never", "free", "None since etcd")
		w.shows("lines", "orders/42", "worker-3")
		w.shows("work", "invoices/1", "no such customer")
		w.shows("work?state=dead&prefix=inv", "invoices/1")
		w.shows("work?state=done", "No record in this state")
		w.shows("schedules", "billing", "nightly", "30 2 * * *", "failed", "key=sched%2Fbilling%2Fowner")
		w.shows("job?group=billing&job=nightly", "2000-01-02 02:30:00 UTC", "2000-01-10", "on time")
		w.shows("job?group=billing&job=often", "full", "failed")
		w.shows("job?group=billing&job=no", "No owner of the group")
		w.shows("queues", "mails")
		w.shows("queue?queue=mails", "mail-0", "bounced")
		w.shows("queue?queue=mails&list=waiting", "mail-1", "mail-2")
		body := w.shows("item?queue=mails&id=mail-0", "bounced", "hidden, 14 bytes", "discarded")
		if strings.Contains(body, "secret") {
			w.Error("a payload is shown")
		}
		w.shows("item?queue=mails&id=no", "There is no such item")
		w.shows("sessions", "api-7", "worker-3", "15 s")
		w.shows("refusals", "None.")
		w.shows("health", "reaches etcd", "Requests", "1 dead, after their last attempt: invoices/1", "claimctl work retry invoices/1", "&#34;mails&#34; has 1 dead item", "claimctl queue dead ls mails")
		for _, where := range []string{"no", "key", "key?key=%00", "work?state=no", "queue?queue=q&list=no", "job?group=a/b&job=c"} {
			if code, body := w.get(where); code/100 != 4 {
				w.Errorf("%s: status %d: %s", where, code, body)
			}
		}
	})
}

// An item shows when it vests, and a completed one nothing that is not known any more.
func TestPageOfItem(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		worker, _ := w.client("worker-3")
		q, err := queue.New(worker, queue.Config{Name: "mails"})
		w.ok(err)
		defer q.Close(context.Background())
		_, err = q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("done")))
		w.ok(err)
		b, err := q.TryClaim(w.Context(), 1)
		w.ok(err)
		w.ok(b.Deliveries[0].Complete(w.Context()))
		_, err = q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("later"), queue.Delay(time.Hour)))
		w.ok(err)
		w.shows("item?queue=mails&id=later", "<dt>Visible", "in 60 min", "Priority", "Enqueued", "Payload")
		body := w.shows("item?queue=mails&id=done", "completed", "worker-3")
		for _, unknown := range []string{"Priority", "Enqueued", "Visible", "Payload"} {
			if strings.Contains(body, unknown) {
				w.Errorf("%s of a completed item is shown", unknown)
			}
		}
	})
}

// A group that nobody runs is found, and so are paused jobs.
func TestGroupWithoutOwner(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		api, _ := w.client("api-7")
		s, err := sched.New(api, sched.Config{Group: "billing"})
		w.ok(err)
		w.ok(s.Add(sched.Job{Name: "nightly", Schedule: calendar.Must(calendar.Cron("30 2 * * *")), Handler: func(context.Context, sched.Tick) error { return nil }}))
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Minute)
		if body := w.shows("schedules", "api-7"); strings.Contains(body, "no process runs it") {
			w.Error("the owner is not found")
		}
		w.shows("health", "Nothing is wrong")
		defined, err := s.Define(w.Context(), sched.Definition{Name: "report", Schedule: "@hourly", Kind: "mail"})
		w.ok(err)
		time.Sleep(time.Minute)
		w.shows("schedules", "report", "problem")
		w.shows("job?group=billing&job=report", "does not run as defined", "has no handler of kind &#34;mail&#34;")
		w.ok(s.Undefine(w.Context(), "report", defined))
		w.ok(s.Forget(w.Context(), "report"))
		w.ok(s.Pause(w.Context(), "nightly", "INC-311"))
		stop()
		w.ok(<-ended)
		time.Sleep(time.Minute)
		w.shows("schedules", "no process runs it")
		w.get("health") // as it was
		time.Sleep(5 * time.Second)
		w.shows("health", "no process runs group &#34;billing&#34;, which has 1 job", "&#34;nightly&#34; of group &#34;billing&#34; is paused by")
	})
}

func TestHeaders(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		answer := httpGet(w.page, "/claims")
		policy := answer.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || answer.Header().Get("X-Content-Type-Options") != "nosniff" {
			w.Errorf("headers are %v", answer.Header())
		}
		for _, forbidden := range []string{"onclick", "onerror", "<style", "style=", "javascript:"} {
			if strings.Contains(answer.Body.String(), forbidden) {
				w.Errorf("the page has %q", forbidden)
			}
		}
		for path, kind := range map[string]string{"/x/style.css": "text/css", "/script.js": "text/javascript", "/icon.svg": "image/svg+xml"} {
			if answer := httpGet(w.page, path); answer.Code != http.StatusOK || !strings.HasPrefix(answer.Header().Get("Content-Type"), kind) {
				w.Errorf("%s: %d %v", path, answer.Code, answer.Header())
			}
		}
		w.page.Close()
		if code, _ := w.get("claims"); code != http.StatusServiceUnavailable {
			w.Errorf("after Close: %d", code)
		}
	})
}

// without returns a client without etcd.
func without(t *testing.T) *etcdclaims.Client {
	t.Helper()
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return claims
}

func TestNoClient(t *testing.T) {
	t.Parallel()
	for _, c := range []*etcdclaims.Client{nil, {}} {
		if _, err := webui.New(c, webui.Config{}); !errors.Is(err, etcdclaims.ErrNoClient) {
			t.Error(err)
		}
	}
}

func TestPassthrough(t *testing.T) {
	t.Parallel()
	page, err := webui.New(without(t), webui.Config{Access: permissive})
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	for _, where := range []string{"/", "/claims", "/key?key=k", "/lines", "/work", "/schedules", "/job?group=g&job=j", "/queues", "/queue?queue=q", "/sessions", "/audit", "/refusals", "/health"} {
		if answer := httpGet(page, where); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "no etcd") {
			t.Errorf("%s: %d %s", where, answer.Code, answer.Body)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []webui.Config{{MaxTabs: -1}, {TrustedOrigins: []string{"no origin"}}} {
		if _, err := webui.New(without(t), cfg); err == nil || !strings.HasPrefix(err.Error(), "webui: config: ") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// Names are whatever somebody has written: nothing of it becomes markup, and nothing
// changes how the rest reads.
func TestHostileNames(t *testing.T) {
	virtually(t, webui.Config{Access: permissive}, func(w *world) {
		const script = `<script>alert(1)</script>"'&`
		names := []string{
			script, "a\u202egnp.exe", "zero\u200bwidth", "../../etc", "a b?c=d&e=f#g%00", strings.Repeat("k", etcdclaims.MaxKeyBytes),
			strings.Repeat("é", etcdclaims.MaxKeyBytes/2), "javascript:alert(1)", "{{.}}", "\U000e0041tag",
		}
		c, _ := w.client(script)
		for _, name := range names {
			claim := w.claim(c, name)
			w.ok(claim.Note(w.Context(), []byte("\x00\xff"+name)))
			w.waits(w.claims, name)
		}
		pages := []string{"", "claims", "lines", "sessions", "audit"}
		for _, name := range names {
			pages = append(pages, keyPage(name), "claims?"+form("", "prefix", name).Encode(), "work?"+form("", "prefix", name).Encode())
		}
		for _, where := range pages {
			body := w.shows(where)
			body = regexp.MustCompile(` value="[^"]*"`).ReplaceAllString(body, "") // what a form is to send
			for _, forbidden := range []string{"<script>alert", "\u202e", "\u200b", "\x00", "\U000e0041", `href="javascript:`, "ZgotmplZ"} {
				if strings.Contains(body, forbidden) {
					w.Errorf("%s has %q:\n%s", where, forbidden, body)
				}
			}
			if strings.Count(body, "<script") != 1 {
				w.Errorf("%s has another script", where)
			}
		}
		w.shows(keyPage(names[0]), "&lt;script&gt;alert(1)&lt;/script&gt;", ">held<")
		w.shows(keyPage(names[1]), `a\u202egnp.exe`, ">held<")
	})
}

func TestPaging(t *testing.T) {
	if testing.Short() {
		t.Skip("ten thousand claims")
	}
	const n = 10_000
	virtually(t, webui.Config{}, func(w *world) {
		c, _ := w.client("many")
		keys := make([]string, n)
		for i := range keys {
			keys[i] = keyNumber(i)
		}
		for len(keys) > 0 {
			some := min(len(keys), 50)
			_, err := c.TryAcquireAll(w.Context(), keys[:some])
			w.ok(err)
			keys = keys[some:]
		}
		w.shows("claims", "1–100 of 10\u202f000 claims", keyNumber(0))
		where, pages, seen := "claims", 0, 0
		for where != "" {
			body := w.shows(where)
			pages++
			seen += strings.Count(body, `class="key"`)
			where = link(body, "next")
		}
		if pages != n/100 || seen != n {
			w.Errorf("%d pages with %d keys", pages, seen)
		}
		body := w.shows("claims?from="+keyNumber(250), "251–350 of")
		if prev := link(body, "prev"); prev != "claims?from="+keyNumber(150) {
			w.Errorf("the page before is %q", prev)
		}
		w.shows("claims?prefix=k%2F0099", "1–100 of 100 claims", keyNumber(9900))
		w.shows("claims?from=zzz", "9901–10000 of") // the page has become empty
		w.shows("claims?prefix=zzz", "No key is held that is selected above")
	})
}

// On a phone each cell of a table has the heading of its column beside it.
func TestCellsAreLabelled(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("assets/*.html")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range strings.Split(string(text), "<thead>")[1:] {
			head, rows, _ := strings.Cut(table, "</thead>")
			for _, label := range regexp.MustCompile(`data-th="([^"{]+)"`).FindAllStringSubmatch(rows, -1) {
				if !regexp.MustCompile(`<th[^>]*>(\{\{[^}]*\}\})?` + regexp.QuoteMeta(label[1]) + `\s*(<|\{)`).MatchString(head + "<") {
					t.Errorf("%s: no column has the label %q of a cell", name, label[1])
				}
			}
			columns := regexp.MustCompile(`<th(?: [^>]*)?>[^<]`).FindAllString(head, -1)
			if labels := strings.Count(rows, "data-th="); labels < len(columns)-1 {
				t.Errorf("%s: %d cells have labels, and %d columns have headings: %s", name, labels, len(columns), head)
			}
		}
	}
}

// A list without entries shows what would stand in it, and has a link to a document that there is.
func TestEmptyLists(t *testing.T) {
	virtually(t, webui.Config{Refusals: new(webui.Refusals)}, func(w *world) {
		for _, where := range []string{"claims", "lines", "work", "schedules", "queues", "groups", "sessions", "audit", "refusals"} {
			body := w.shows(where, " stand")
			link := regexp.MustCompile(`href="https://github\.com/etcdclaims/claims/blob/main/(docs/[a-z]+\.md)">About it<`)
			about := link.FindStringSubmatch(body)
			if about == nil {
				w.Errorf("%s has no link to a document:\n%s", where, body)
				continue
			}
			if _, err := os.Stat("../../" + about[1]); err != nil {
				w.Error(err)
			}
		}
	})
}
