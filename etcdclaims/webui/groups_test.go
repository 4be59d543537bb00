package webui_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// joins makes a process a member of a group.
func (w *world) joins(cfg group.Config) (*group.Member, *claimtest.Host) {
	w.Helper()
	claims, host := w.client(cfg.Name)
	cfg.Cooldown = -1
	m, err := group.Join(w.Context(), claims, cfg, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
		<-ctx.Done()
		return nil
	})
	w.ok(err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		w.ok(m.Leave(ctx))
	})
	return m, host
}

// hostile is a name that pages must not take as it is.
const hostile = `<b onclick="x">'&orders`

func TestGroupPages(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		w.shows("groups", "No group of partitions.")
		w.shows("group?group=none", "No process has joined")
		if code, _ := w.get("group?group=a%2Fb"); code != http.StatusBadRequest {
			w.Errorf("an invalid name: status %d", code)
		}
		cfg := group.Config{Group: hostile, Partitions: 200, Name: "<pod-a>", Zone: "eu<1", Address: "10.0.0.1:80", Weight: 3}
		a, _ := w.joins(cfg)
		cfg.Name, cfg.Weight, cfg.Away = "pod-b", 1, time.Hour
		b, _ := w.joins(cfg)
		where := "group?group=%3Cb+onclick%3D%22x%22%3E%27%26orders"
		time.Sleep(10 * time.Second)
		body := w.shows("groups", "&lt;b onclick=", `"Partitions">200<`, `"Members">2<`, `"Away">0<`, `"Evicted">0<`, `"Free">0<`)
		if strings.Contains(body, "<b onclick") {
			w.Error("a name is not escaped")
		}
		body = w.shows(where, "&lt;pod-a&gt;", "eu&lt;1", "10.0.0.1:80", "pod-b",
			`"Owns">150<td class="num" data-th="Wants">150`, `"Owns">50<td class="num" data-th="Wants">50`, "0–99 of 200")
		if n := strings.Count(body, `<a class="m`); n != 200 {
			w.Errorf("%d cells", n)
		}
		for _, forbidden := range []string{"<pod-a", "<b onclick", "style=", "<form"} {
			if strings.Contains(body, forbidden) {
				w.Errorf("the page has %q", forbidden)
			}
		}
		owners := a.View().Assignment().Owners
		partition := slices.IndexFunc(owners, func(o group.Owner) bool { return o.Member == "pod-b" })
		w.shows(where+fmt.Sprint("&from=", partition), fmt.Sprintf("partition%%2F%05d", partition),
			fmt.Sprintf(`>%d</a><td data-th="No."><span class="chip m1">2</span>`, partition)+
				fmt.Sprintf(`<td class="key" data-th="Member"><bdi>pod-b</bdi><td class="num" data-th="Fence">%d<td`, owners[partition].Token.Fence))
		w.shows(where + "&from=99999999999999999999")

		w.ok(b.Leave(w.Context()))
		time.Sleep(5 * time.Second)
		w.shows(where, "50 reserved", ">away<", "in 59 min")
		w.shows(where+"&from=100", "reserved for <bdi>pod-b</bdi>")
		w.shows("health", "Nothing is wrong")
	})
}

// A group of the greatest number of partitions has few cells.
func TestLargeGroupPage(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		w.joins(group.Config{Group: "large", Partitions: 3000, Name: "pod-a"})
		time.Sleep(20 * time.Second)
		body := w.shows("group?group=large", "Each cell stands for 3 partitions", "partitions 0–2: pod-a 3")
		if n := strings.Count(body, "title=\"partitions "); n != 1000 {
			w.Errorf("%d cells", n)
		}
		if len(body) > 200_000 {
			w.Errorf("%d bytes", len(body))
		}
	})
}

func TestGroupActions(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	var denied atomic.Bool
	access := func(_ *http.Request, op webui.Operation) error {
		if denied.Load() && op.Action != webui.ActionView {
			return errors.New("not you")
		}
		return nil
	}
	cfg := webui.Config{Access: access, Logger: zap.New(core), User: func(*http.Request) string { return "alice" }}
	virtually(t, cfg, func(w *world) {
		a, _ := w.joins(group.Config{Group: "orders", Partitions: 6, Name: "pod-a"})
		w.joins(group.Config{Group: "orders", Partitions: 6, Name: "pod-b"})
		time.Sleep(10 * time.Second)
		w.shows("group?group=orders", `name="member" value="pod-a"`, `value="evict-member"`)
		evict := form("evict-member", "group", "orders", "member", "pod-a", "reason", "hangs", "for", "1h")
		for name, change := range map[string]string{"reason": "", "for": "forever", "group": "a/b", "member": "a/b"} {
			bad := form("evict-member", "group", "orders", "member", "pod-a", "reason", "hangs", "for", "1h")
			bad.Set(name, change)
			if answer := w.post(bad); answer.Code != http.StatusBadRequest {
				w.Errorf("%s %q: status %d", name, change, answer.Code)
			}
		}
		if answer := w.post(form("readmit-member", "group", "none", "member", "pod-a")); answer.Code != http.StatusNotFound {
			w.Errorf("no such group: status %d", answer.Code)
		}
		if answer := w.post(evict, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); answer.Code != http.StatusForbidden {
			w.Errorf("of another site: status %d", answer.Code)
		}
		denied.Store(true)
		if answer := w.post(evict); answer.Code != http.StatusForbidden {
			w.Errorf("denied: status %d", answer.Code)
		}
		if strings.Contains(w.shows("group?group=orders"), "<form") {
			w.Error("a form is shown that would be denied")
		}
		denied.Store(false)
		w.ok(a.Err())
		logs.TakeAll()
		answer := w.post(evict)
		if back := locationOf(answer); answer.Code != http.StatusSeeOther || back != "group?group=orders&done=evict-member" {
			w.Fatalf("status %d, %s: %s", answer.Code, back, answer.Body)
		}
		done := logs.FilterMessage("operation carried out").All()
		if len(done) != 1 || done[0].ContextMap()["user"] != "alice" || done[0].ContextMap()["member"] != "pod-a" || done[0].ContextMap()["for"] != time.Hour {
			w.Errorf("the log has %v", done)
		}
		<-a.Done()
		var evicted *group.EvictedError
		if !errors.As(a.Err(), &evicted) || evicted.Reason != "alice: hangs" {
			w.Errorf("it left with %v", a.Err())
		}
		time.Sleep(5 * time.Second)
		w.shows("group?group=orders&done=evict-member", "The member was evicted.", ">evicted<", "alice: hangs",
			`value="readmit-member"`, `"Owns">6<td class="num" data-th="Wants">6`)
		if answer := w.post(form("readmit-member", "group", "orders", "member", "pod-a")); answer.Code != http.StatusSeeOther {
			w.Fatalf("status %d: %s", answer.Code, answer.Body)
		}
		w.joins(group.Config{Group: "orders", Partitions: 6, Name: "pod-a"})
	})
}

// A tab hears of partitions that change hands, and of members. Many tabs take as many requests
// as one.
func TestLiveGroup(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		w.joins(group.Config{Group: "orders", Partitions: 6, Name: "pod-a"})
		time.Sleep(5 * time.Second)
		requests := func() int64 {
			before := w.claims.Stats().Requests
			time.Sleep(2 * time.Minute)
			return w.claims.Stats().Requests - before
		}
		s := w.opens("group?group=orders")
		list := w.opens("groups")
		if s.next(5*time.Second) != "ready" || list.next(5*time.Second) != "ready" {
			w.Fatal("a tab is not ready")
		}
		time.Sleep(time.Minute)
		one := requests()
		for range 20 {
			w.opens("group?group=orders")
		}
		time.Sleep(time.Minute)
		if many := requests(); one == 0 || many > one+one/10+2 {
			w.Errorf("%d requests with 21 tabs, %d with one", many, one)
		}
		s.drain()
		list.drain()
		w.joins(group.Config{Group: "orders", Partitions: 6, Name: "pod-b"})
		for name, tab := range map[string]*stream{"the group": s, "the list": list} {
			if tab.next(5*time.Second) != "changed" {
				w.Errorf("%s does not change", name)
			}
		}
		time.Sleep(5 * time.Second)
		w.shows("group?group=orders", "pod-b", `"Owns">3<td class="num" data-th="Wants">3`)
	})
}
