package webui_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// ghost puts a place in line that nobody stands in.
func (w *world) ghost(key, owner string, opts ...clientv3.OpOption) {
	w.Helper()
	_, err := w.server.Admin().Put(w.Context(), etcdclaims.DefaultPrefix+"wait/"+keyspace.Digest(key)+"/"+owner,
		`{"v":1,"claim":"`+owner+`","owner":"`+owner+`","since":"1999-12-31T12:00:00Z"}`, opts...)
	w.ok(err)
}

// The next owner is the first caller in line that is alive.
func TestNextIsAlive(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		holder, _ := w.client("api-7")
		w.claim(holder, "k")
		w.ghost("k", "sleepy")
		w.ghost("k", "dreamy")
		w.shows("key?key=k", "sleepy", ">ghost<")
		w.lacks(w.shows("key?key=k"), ">next<", "and go to")
		lease, err := w.server.Admin().Grant(w.Context(), 600)
		w.ok(err)
		w.ghost("k", "awake", clientv3.WithLease(lease.ID)) // a key on a live lease is no ghost
		w.ghost("k", "later", clientv3.WithLease(lease.ID))
		time.Sleep(5 * time.Second)
		body := w.shows("key?key=k", "and go to <bdi>awake</bdi>")
		if n := strings.Count(body, ">ghost<"); n != 2 {
			w.Errorf("%d ghosts are shown, want 2", n)
		}
		if !regexp.MustCompile(`<bdi>awake</bdi>[^\n]*>next</span><li`).MatchString(body) || strings.Count(body, ">next<") != 1 {
			w.Errorf("the next is not the first that is alive:\n%s", body)
		}
		for i := range 30 { // more than are asked for
			w.ghost("ghosts", fmt.Sprintf("g%02d", i), clientv3.WithLease(w.leaseOf(i)))
		}
		w.lacks(w.shows("key?key=ghosts", "g29"), ">ghost<")
	})
}

// leaseOf returns a lease of its own.
func (w *world) leaseOf(i int) clientv3.LeaseID {
	w.Helper()
	lease, err := w.server.Admin().Grant(w.Context(), int64(600+i))
	w.ok(err)
	return lease.ID
}

func TestRenewed(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		holder, host := w.client("api-7")
		w.claim(holder, "k")
		time.Sleep(time.Minute)
		renewed := regexp.MustCompile(`<dt>Renewed<dd><time datetime="([^"]+)"`)
		for range 5 {
			body := w.shows("key?key=k", "Renewed")
			w.lacks(body, "overdue")
			found := renewed.FindStringSubmatch(body)
			if found == nil {
				w.Fatalf("no time of a renewal:\n%s", body)
			}
			at, err := time.Parse(time.RFC3339, found[1])
			w.ok(err)
			if ago := time.Since(at); ago < -2*time.Second || ago > 8*time.Second {
				w.Errorf("renewed %v ago, of a lease that is renewed every 5 s", ago)
			}
			time.Sleep(4 * time.Second)
		}
		host.Cut()
		time.Sleep(12 * time.Second)
		w.shows("key?key=k", ">overdue<", "the holder renews every 5 s")
		host.Heal()
		_, err := w.server.Admin().Put(w.Context(), "/etcdclaims/own/forever", `{"v":1}`)
		w.ok(err)
		w.lacks(w.shows("key?key=forever", "without a lease"), "Renewed")
	})
}

// What a newer version holds is called that, and no end is offered of it.
func TestNewerClaim(t *testing.T) {
	virtually(t, webui.Config{Access: permissive}, func(w *world) {
		holder, _ := w.client("api-7")
		w.claim(holder, "ours")
		_, err := w.server.Admin().Put(w.Context(), holder.Prefix()+"own/theirs", `{"v":99,"claim":{}}`, clientv3.WithLease(w.leaseOf(1)))
		w.ok(err)
		w.shows("key?key=ours", "End this term")
		w.lacks(w.shows("key?key=theirs", "as a newer version wrote it"), "End this term")
	})
}

// The time at which the holder asked for the key is that, and not the begin of its term.
func TestAskedIsNotBegun(t *testing.T) {
	refusals := new(webui.Refusals)
	virtually(t, webui.Config{Refusals: refusals}, func(w *world) {
		former, _ := w.client("api-7")
		heir, _ := w.client("api-8")
		w.lacks(w.shows("key?key=k"), "<dt>Began")
		old := w.claim(former, "k")
		w.waits(heir, "k")
		time.Sleep(40 * time.Second)
		w.ok(old.Release(w.Context()))
		time.Sleep(2 * time.Second)
		now, err := w.claims.Lookup(w.Context(), "k")
		w.ok(err)
		gate := refusals.Gate("payments", new(fencing.Memory))
		w.ok(gate.Admit(w.Context(), fencing.Token{Key: "k", Fence: now.Fence}))
		if err := gate.Admit(w.Context(), old.Token()); err == nil {
			w.Fatal("the gate admits a stale token")
		}
		for _, where := range []string{"refusals", "key?key=k"} {
			found := regexp.MustCompile(`([\d.]+ s) after <bdi>api-8</bdi> was seen to take over`).FindStringSubmatch(w.shows(where))
			if found == nil {
				w.Fatalf("%s does not show how late the write was", where)
			}
			if after, err := time.ParseDuration(strings.ReplaceAll(found[1], " ", "")); err != nil || after < time.Second || after > 3*time.Second {
				w.Errorf("%s: %v after the take-over, %v; want 2 s", where, after, err)
			}
		}
		body := w.shows("key?key=k", "<dt>Asked", "<th>Asked")
		w.lacks(body, "<dt>Since", "<th>Since")
		at := func(name string) time.Time {
			w.Helper()
			found := regexp.MustCompile(`<dt>` + name + `<dd><time datetime="([^"]+)"`).FindStringSubmatch(body)
			if found == nil {
				w.Fatalf("%s is not shown", name)
			}
			at, err := time.Parse(time.RFC3339, found[1])
			w.ok(err)
			return at
		}
		if between := at("Began").Sub(at("Asked")); between < 39*time.Second || between > 42*time.Second {
			w.Errorf("the term began %v after the holder asked, want 40 s", between)
		}
		w.shows("claims", ">Asked<")

		// A page that did not look then does not know when it began.
		late, err := webui.New(w.claims, webui.Config{Refusals: refusals})
		w.ok(err)
		defer late.Close()
		for _, where := range []string{"/refusals", "/key?key=k"} {
			body := httpGet(late, where).Body.String()
			if !strings.Contains(body, "STALE_FENCE") {
				w.Errorf("%s does not show the refusal", where)
			}
			w.lacks(body, "take over", "<dt>Began")
		}
	})
}

// Terms are drawn over time: over that which the page saw, and else about that of the holders' clocks.
func TestTermsOverTime(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		c, _ := w.client("api-7")
		early := w.claim(c, "k")
		time.Sleep(10 * time.Minute)
		tab := w.opens("key?key=k")
		time.Sleep(time.Second)
		observed := time.Now().UTC().Format("2006-01-02 15:04:")
		w.shows("key?key=k", "since "+observed, `class="now guessed"`, "held, about 2000-01-01 00:00:")
		time.Sleep(10 * time.Minute)
		w.ok(early.Release(w.Context()))
		time.Sleep(10 * time.Minute)
		w.claim(c, "k")
		time.Sleep(10 * time.Minute)
		body := w.shows("key?key=k", `class="well guessed"`, `class="now"`, `data-th="Why it ended">released`,
			`<rect x="0" y="26" width="320"`, `<rect x="480" y="0" width="160"`)
		if ended := regexp.MustCompile(`data-th="Ended">2000-01-01 00:20:\d\d UTC`); !ended.MatchString(body) {
			w.Errorf("the first term ends at another time:\n%s", body)
		}
		tab.leave()
		time.Sleep(10 * time.Minute) // the page forgets
		w.lacks(w.shows("key?key=k"), `data-th="Ended"`)
	})
}

// A watch that begins again knows no more about terms that began meanwhile.
func TestBegunDuringOutage(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		c, _ := w.client("api-7")
		w.shows("claims")
		kept := w.claim(c, "kept")
		w.eventually("the page has seen the term begin", func() bool {
			_, body := w.get("key?key=kept")
			return strings.Contains(body, "<dt>Began")
		})
		w.host.Cut()
		time.Sleep(20 * time.Second)
		w.claim(c, "new")
		time.Sleep(20 * time.Second)
		w.host.Heal()
		w.eventually("the page is well", func() bool {
			_, body := w.get("key?key=new")
			return strings.Contains(body, "api-7") && !saysAway(body)
		})
		w.shows("key?key=kept", "<dt>Began")
		w.ok(kept.Release(w.Context()))
	})
}

// Work that is at most once is begun again only by somebody who says why.
func TestAtMostOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	cfg := webui.Config{Access: permissive, Logger: zap.New(core)}
	virtually(t, cfg, func(w *world) {
		c, _ := w.client("api-7")
		err := testwork.Of(c).TryRun(w.Context(), "charge/1", func(context.Context, *work.Work) error {
			return etcdclaims.Permanent(errors.New("no answer"))
		}, work.AtMostOnce())
		if err == nil {
			w.Fatal("the work did not fail")
		}
		lone, host := w.client("api-8")
		orphan, err := testwork.Of(lone).TryBegin(w.Context(), "charge/2", work.AtMostOnce())
		w.ok(err)
		host.Cut()
		<-orphan.Done()
		time.Sleep(30 * time.Second)
		err = testwork.Of(w.claims).TryRun(w.Context(), "mail/1", func(context.Context, *work.Work) error { return etcdclaims.Permanent(errors.New("no")) })
		if err == nil {
			w.Fatal("the work did not fail")
		}
		err = testwork.Of(c).TryRun(w.Context(), "charge/3", func(context.Context, *work.Work) error { return errors.New("busy") }, work.AtMostOnce())
		if err == nil {
			w.Fatal("the work did not fail")
		}
		w.lacks(w.shows("key?key=charge/3", ">failed<", ">at most once<"), "effect may have happened") // callers try it again
		for key, state := range map[string]string{"charge/1": "dead", "charge/2": "orphaned"} {
			where := keyPage(key)
			body := w.shows(where, ">"+state+"<", ">at most once<", "its effect may have happened")
			if !regexp.MustCompile(`value="retry-work">[^\n]*name="reason"[^\n]* required[^\n]*Let it be begun again</button>`).MatchString(body) {
				w.Errorf("the form of %s asks for no reason:\n%s", key, body)
			}
			if answer := w.post(form("retry-work", "key", key)); answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "at most once") {
				w.Errorf("%s without a reason: status %d: %s", key, answer.Code, answer.Body)
			}
			if r, _, err := testwork.Of(w.claims).Record(w.Context(), key); err != nil || string(r.State) != state {
				w.Errorf("%s is %v, %v", key, r.State, err)
			}
			logs.TakeAll()
			if answer := w.post(form("retry-work", "key", key, "reason", "the bank has no entry")); answer.Code != http.StatusSeeOther {
				w.Errorf("%s with a reason: status %d: %s", key, answer.Code, answer.Body)
			}
			entries := logs.FilterMessage("operation carried out").All()
			if len(entries) != 1 || entries[0].ContextMap()["reason"] != "the bank has no entry" {
				w.Errorf("the log has %v", entries)
			}
		}
		if n := strings.Count(w.shows("work"), ">at most once<"); n != 3 {
			w.Errorf("%d records are shown as at most once, want 3", n)
		}
		w.lacks(w.shows("key?key=mail/1", "Let it be begun again"), "at most once", "effect may")
		if answer := w.post(form("retry-work", "key", "mail/1")); answer.Code != http.StatusSeeOther {
			w.Errorf("other work without a reason: status %d: %s", answer.Code, answer.Body)
		}
	})
}
