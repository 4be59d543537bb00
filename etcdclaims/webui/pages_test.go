package webui_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
)

func TestPages(t *testing.T) {
	virtually(t, webui.Config{Title: "production", Refusals: new(webui.Refusals)}, func(w *world) {
		w.busy()
		w.shows("", "production", "of 2 jobs overdue", "<b>1</b> caller in line", "<b>1</b> dead letter", "<b>1</b> work orphaned or dead")
		w.shows("claims?internal=1", "orders/42", "api-7", "sched/billing/owner")
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
		w.shows("health", "reaches etcd", "Requests", "1 dead, after their last attempt: invoices/1", "claimctl work retry invoices/1", "&#34;mails&#34; has 1 dead letter", "claimctl queue dead ls mails")
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
		w.ok(b.Deliveries[0].SetResult([]byte("17 recipients")))
		w.ok(b.Deliveries[0].Complete(w.Context()))
		_, err = q.Enqueue(w.Context(), queue.NewItem(nil, queue.ID("later"), queue.Delay(time.Hour)))
		w.ok(err)
		w.shows("item?queue=mails&id=later", "<dt>Visible", "in 60 min", "Priority", "Enqueued", "Payload")
		body := w.shows("item?queue=mails&id=done", "completed", "worker-3", "<dt>Result<dd><pre>(hidden, 13 bytes)")
		if strings.Contains(body, "cancel-item") || strings.Contains(w.shows("item?queue=mails&id=later"), "cancel-item") {
			w.Error("it can be cancelled where nobody may")
		}
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
		body := w.shows("claims?page=3", "201–300 of", keyNumber(200))
		if prev := link(body, "prev"); prev != "claims?page=2" {
			w.Errorf("the page before is %q", prev)
		}
		w.shows("claims?prefix=k%2F0099", "1–100 of 100 claims", keyNumber(9900))
		w.shows("claims?page=999", "9901–10000 of") // the page has become empty
		w.shows("claims?prefix=zzz", "No key is held that is selected above")
	})
}

// On a phone each cell of a table has the heading of its column beside it.
func TestCellsAreLabelled(t *testing.T) {
	seen := make(map[string]bool)
	check := func(name, body string) {
		for _, table := range strings.Split(body, "<table")[1:] {
			table, _, _ = strings.Cut(table, "</table>")
			parts := strings.Split(table, "<tr")
			heads := cellsOf(parts[1], "th")
			for _, row := range parts[2:] {
				cells := cellsOf(row, "td")
				for i, c := range cells {
					seen[name] = seen[name] || c.label != ""
					switch {
					case i >= len(heads):
						t.Errorf("%s: a row has more cells than the table has headings: %s", name, row)
					case i > 0 && c.label != heads[i].text && c.label+c.text != "":
						t.Errorf("%s: a cell of the column %q has the label %q", name, heads[i].text, c.label)
					}
				}
			}
		}
	}
	refusals := new(webui.Refusals)
	virtually(t, webui.Config{Refusals: refusals, Access: permissive}, func(w *world) {
		w.busy()
		c, _ := w.client("pod")
		m, err := group.Join(w.Context(), c, group.Config{Group: "shards", Partitions: 4, Name: "pod-a"},
			func(ctx context.Context, _ int, _ *etcdclaims.Claim) error { <-ctx.Done(); return nil })
		w.ok(err)
		w.Cleanup(func() { w.ok(m.Leave(context.Background())) })
		for key, o := range map[string]etcdclaims.AcquireOption{"ports": etcdclaims.Slots(3), "table": etcdclaims.Shared()} {
			_, err := c.TryAcquire(w.Context(), key, o)
			w.ok(err)
		}
		w.ok(admin.ForceRelease(w.Context(), c, "orders/42", "stuck"))
		time.Sleep(10 * time.Second) // who waited has the key
		late, _ := w.client("late")
		w.waits(late, "orders/42")
		gate := refusals.Gate("payments", new(fencing.Memory))
		w.ok(gate.Admit(w.Context(), fencing.Token{Key: "orders/42", Fence: 9}))
		if gate.Admit(w.Context(), fencing.Token{Key: "orders/42", Fence: 1}) == nil {
			w.Error("the gate admits a stale token")
		}
		for _, where := range []string{
			"", "claims", "claims?tree=1", "key?key=orders/42", "lines", "work", "schedules", "job?group=billing&job=often", "queues",
			"queue?queue=mails", "queue?queue=mails&list=dead", "item?queue=mails&id=mail-0", "sessions", "refusals", "health", "groups",
			"group?group=shards", "audit", "key?key=ports", "key?key=table",
		} {
			w.get(where)
			time.Sleep(10 * time.Second)
			w.claim(c, "while looking at "+where)
			time.Sleep(time.Second)
			name, _, _ := strings.Cut(where, "?")
			check(name, w.shows(where))
		}
	})
	files, err := filepath.Glob("assets/*.html")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".html")
		if name == "overview" {
			name = ""
		}
		if strings.Contains(string(text), "<table") && !seen[name] {
			t.Errorf("no row of a table of %s was checked", file)
		}
	}
}

// cell is a cell or a heading.
type cell struct {
	label, text string
	span        int
}

var cellParts = regexp.MustCompile(`(?s)^([^>]*)>(.*)`)

// cellsOf returns the cells of a row, where each of those that span several columns is followed by
// empty ones.
func cellsOf(row, element string) (cells []cell) {
	for _, text := range strings.Split(row, "<"+element)[1:] {
		part := cellParts.FindStringSubmatch(text)
		if part == nil || part[1] != "" && part[1][0] != ' ' {
			continue // <thead
		}
		c := cell{text: strings.TrimSpace(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(part[2], "")), span: 1}
		if label := regexp.MustCompile(`data-th="([^"]*)"`).FindStringSubmatch(part[1]); label != nil {
			c.label = label[1]
		}
		if span := regexp.MustCompile(`colspan="(\d+)"`).FindStringSubmatch(part[1]); span != nil {
			c.span, _ = strconv.Atoi(span[1])
		}
		cells = append(cells, c)
		for range c.span - 1 {
			cells = append(cells, cell{})
		}
	}
	return cells
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
