package webui_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/webui"
)

// The first page begins with what needs a person, since when, and where it is.
func TestNeedsAttention(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		w.opens("overview")
		time.Sleep(time.Second)
		w.shows("", "members that answer: 1 of 1", "of the quota", "claims followed: 0", "Needs attention", "Nothing. This list shows what the doctor finds")
		_, err := w.server.Admin().Put(w.Context(), "/etcdclaims/own/forever", `{"v":1}`)
		w.ok(err)
		time.Sleep(time.Minute)
		_, err = w.server.Admin().Put(w.Context(), "/etcdclaims/own/always", `{"v":1}`)
		w.ok(err)
		time.Sleep(5 * time.Minute)
		page := w.shows("", `<a href="claims">claims</a>: <bdi>without a lease, so that they never expire: always, forever`, "claims followed: 2")
		_, after, _ := strings.Cut(page, "so that they never expire")
		if !strings.Contains(after[:300], "5 min ago") {
			t.Errorf("since when is not shown: %s", after[:300])
		}
		_, err = w.server.Admin().Delete(w.Context(), "/etcdclaims/own/forever")
		w.ok(err)
		_, err = w.server.Admin().Delete(w.Context(), "/etcdclaims/own/always")
		w.ok(err)
		time.Sleep(time.Minute)
		w.shows("", "Nothing. This list shows what the doctor finds")
		w.server.Stop(w.T)
		time.Sleep(time.Minute)
		w.shows("", `role="alert"><b>etcd `, "members that answer: 0 of 1")
		w.server.Restart(w.T)
	})
}

// Who may not view Health is shown nothing of what is found there.
func TestNeedsAttentionOfFew(t *testing.T) {
	access := func(_ *http.Request, o webui.Operation) error {
		if o.Page == "health" {
			return errors.New("no")
		}
		return nil
	}
	virtually(t, webui.Config{Access: access}, func(w *world) {
		_, err := w.server.Admin().Put(w.Context(), "/etcdclaims/own/forever", `{"v":1}`)
		w.ok(err)
		w.opens("overview")
		time.Sleep(time.Minute)
		if page := w.shows("", "claims followed: 1"); strings.Contains(page, "never expire") || strings.Contains(page, "members that") {
			t.Error(page)
		}
	})
}

// A key that changes hands all the time is one line, and hides no other key.
func TestChangesAreFolded(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		c, _ := w.client("api-7")
		w.opens("overview")
		time.Sleep(time.Second)
		rare := w.claim(c, "rare")
		for range 60 {
			w.ok(w.claim(c, "often").Release(w.Context()))
		}
		time.Sleep(time.Second)
		page := w.shows("", "rare", `"Changes">120`)
		if n := strings.Count(page, "key?key=often"); n != 1 {
			t.Errorf("the key has %d lines", n)
		}
		w.ok(rare.Release(w.Context()))
	})
}

// The first page shows the last hour: what was known, and nothing before there are two samples.
func TestSparklines(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		c, _ := w.client("api-7")
		w.claim(c, "a")
		tab := w.opens("overview")
		time.Sleep(30 * time.Second)
		w.lacks(w.shows("", "late sessions"), "in the last hour")
		for i := range 10 {
			w.claim(c, keyNumber(i))
		}
		w.waits(w.claims, "a")
		time.Sleep(time.Minute)
		w.shows("", `role="img" aria-label="in the last hour between 1 and 11"`, "in the last hour between 0 and 1")
		tab.leave()
		time.Sleep(2 * time.Hour)
		w.lacks(w.shows(""), "in the last hour")
	})
}

// everyTopic opens tabs that show more than is read at the same time.
func (w *world) everyTopic() {
	for _, where := range []string{"claims", "key?key=a", "lines", "work", "schedules", "queues", "queue?queue=q", "groups", "sessions", "audit"} {
		w.opens(where)
	}
}

// An open tab hears of an outage within two seconds, also if nothing is refused. Health names the members
// soon, however many other reads hang.
func TestOutageIsShownSoon(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		w.everyTopic()
		tab := w.opens("overview")
		time.Sleep(10 * time.Second)
		tab.drain()
		w.host.Cut()
		cut := time.Now()
		for _, body := w.get(""); !saysAway(body); _, body = w.get("") {
			if tab.next(2*time.Second-time.Since(cut)) != "changed" {
				w.Fatal("the tab does not notice")
			}
		}
		for {
			_, body := w.get("health")
			if time.Since(cut) > 5*time.Second {
				w.Fatalf("Health does not name the member:\n%s", body)
			}
			if none, named := silent(body); none == 1 && named == 1 && strings.Contains(body, "does not reach etcd") {
				break
			}
		}
		w.host.Heal()
		w.eventually("Health is well", func() bool {
			_, body := w.get("health")
			_, process, _ := strings.Cut(body, `aria-label="This process"`)
			well := strings.Contains(process, ">reaches etcd<")
			if well && strings.Contains(process, "unreachable") {
				w.Fatalf("the outage has ended, and Health shows its error:\n%s", process)
			}
			return well
		})
		time.Sleep(10 * time.Second)
		if page := w.shows(""); saysAway(page) {
			w.Error("the outage does not end")
		}
	})
}
