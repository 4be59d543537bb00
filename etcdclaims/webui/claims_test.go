package webui_test

import (
	"context"
	"html"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
)

// listed returns the keys of a list, in its order.
func listed(body string) (keys []string) {
	for _, row := range regexp.MustCompile(`class="key"[^>]*><a [^>]*><bdi>([^<]*)<`).FindAllStringSubmatch(body, -1) {
		keys = append(keys, row[1])
	}
	return keys
}

// linked returns the address of the link with a text.
func linked(body, text string) string {
	if a := regexp.MustCompile(`<a href="([^"]*)">` + regexp.QuoteMeta(text) + `<`).FindStringSubmatch(body); a != nil {
		return html.UnescapeString(a[1])
	}
	return ""
}

// Claims can be selected, sorted and looked at as a tree, by addresses that show the same again.
func TestClaimsView(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		a, _ := w.client("api-7")
		b, host := w.client("api-8")
		w.claim(a, "orders/eu/1")
		time.Sleep(time.Minute)
		w.claim(b, "orders/eu/2")
		w.claim(a, "orders/us/1")
		w.claim(b, "orders/all")
		w.claim(a, "table")
		w.waits(b, "orders/us/1")
		q, err := queue.New(a, queue.Config{Name: "mails"})
		w.ok(err)
		w.Cleanup(func() { w.ok(q.Close(context.Background())) })
		_, err = q.Enqueue(w.Context(), queue.NewItem(nil))
		w.ok(err)
		batch, err := q.TryClaim(w.Context(), 1)
		w.ok(err)
		w.get("claims")
		time.Sleep(10 * time.Second)
		keys := []string{"orders/all", "orders/eu/1", "orders/eu/2", "orders/us/1", "table"}
		for where, want := range map[string][]string{
			"claims":                        keys,
			"claims?text=us":                {"orders/us/1"},
			"claims?text=i-8":               {"orders/all", "orders/eu/2"},
			"claims?owner=api-7":            {"orders/eu/1", "orders/us/1", "table"},
			"claims?owner=api":              nil,
			"claims?sort=owner":             {"orders/eu/1", "orders/us/1", "table", "orders/all", "orders/eu/2"},
			"claims?sort=-fence":            {"table", "orders/all", "orders/us/1", "orders/eu/2", "orders/eu/1"},
			"claims?sort=-":                 {"table", "orders/us/1", "orders/eu/2", "orders/eu/1", "orders/all"},
			"claims?sort=nonsense":          keys,
			"claims?sort=-waiting&text=s/1": nil,
			"claims?tree=1":                 {"orders/", "table"},
			"claims?tree=1&prefix=orders/":  {"orders/eu/", "orders/us/", "orders/all"},
			"claims?tree=1&sort=-":          {"orders/", "table"},
		} {
			if got := listed(w.shows(where)); !slices.Equal(got, want) && want != nil || want == nil && where == "claims?owner=api" && got != nil {
				w.Errorf("%s lists %q, want %q", where, got, want)
			}
		}
		body := w.shows("claims?sort=-waiting", `aria-sort="descending"`, `data-th="Waiting">1<`, "2 keys of schedules, queues and groups")
		if got := listed(body); got[0] != "orders/us/1" {
			w.Errorf("who waits: %q", got)
		}
		if n := len(regexp.MustCompile(`data-th="Renewed"><time`).FindAllString(body, -1)); n != 5 {
			w.Errorf("%d claims show when they were renewed", n)
		}
		if got := listed(w.shows(linked(body, "2 keys of schedules, queues and groups"), "7 claims")); len(got) != 7 || got[0] != "orders/us/1" {
			w.Errorf("internal keys are shown: %q", got)
		}
		if got := listed(w.shows("claims?prefix=queue/")); len(got) != 2 {
			w.Errorf("below the prefix of the queues are %q", got)
		}
		body = w.shows("claims?owner=api-7&tree=1&prefix=orders/", "1–2 of 2 entries, 2 claims")
		if got := linked(body, "All claims"); got != "claims?owner=api-7&tree=1" {
			w.Errorf("up is %q", got)
		}
		if got := linked(body, "Owner"); got != "claims?owner=api-7&prefix=orders%2F&sort=owner&tree=1" {
			w.Errorf("by owner is %q", got)
		}
		w.ok(batch.Deliveries[0].Complete(w.Context()))
		host.Cut() // its session is late
		time.Sleep(9 * time.Second)
		if got := listed(w.shows("claims?sort=renewed")); got[0] != "orders/all" || got[1] != "orders/eu/2" {
			w.Errorf("the late first: %q", got)
		}
		host.Heal()
	})
}
