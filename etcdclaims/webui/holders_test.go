package webui_test

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/internal/option"
)

// take claims a slot of a key, or shares it.
func (w *world) take(c *etcdclaims.Client, key string, opts ...etcdclaims.AcquireOption) *etcdclaims.Claim {
	w.Helper()
	claim, err := c.TryAcquire(w.Context(), key, opts...)
	w.ok(err)
	return claim
}

// releaseForm returns the form of the page that ends the claim of a key, as a browser sends it.
func (w *world) releaseForm(where, key string) url.Values {
	w.Helper()
	fields := regexp.MustCompile(`name="key" value="` + regexp.QuoteMeta(key) + `"><input type="hidden" name="fence" value="(\d+)"`).FindStringSubmatch(w.shows(where))
	if fields == nil {
		w.Fatalf("%s has no form to end the claim of %q", where, key)
	}
	return form("release", "key", key, "fence", fields[1], "reason", "stuck")
}

func (w *world) lacks(body string, texts ...string) {
	w.Helper()
	for _, text := range texts {
		if strings.Contains(body, text) {
			w.Errorf("the page has %q:\n%s", text, body)
		}
	}
}

func TestSlots(t *testing.T) {
	virtually(t, webui.Config{Access: permissive}, func(w *world) {
		const key = "ports"
		a, _ := w.client("api-1")
		b, _ := w.client("api-2")
		held := map[string]*etcdclaims.Claim{}
		for _, c := range []*etcdclaims.Client{a, a, b} {
			claim := w.take(c, key, etcdclaims.Slots(3))
			held[claim.Key()] = claim
		}
		go func() { // one more than there are slots
			claim, err := b.Acquire(w.Context(), key, etcdclaims.Slots(3))
			if err == nil {
				err = claim.Release(w.Context())
			}
			if err != nil && w.Context().Err() == nil {
				w.Error(err)
			}
		}()
		w.take(a, etcdclaims.SlotKey(key, 1)+"x", option.OwnKey{}) // it is no slot
		time.Sleep(5 * time.Second)

		body := w.shows("claims?prefix=ports", "3 slots", "(several: each has a slot)", "ports#slot-0", "api-2")
		w.lacks(body, "no lease")
		w.shows("claims?kind=slots", "1–1 of 1 claim")
		w.shows("", "<b>4</b> claims held", "<b>1</b> caller in line")
		w.lacks(w.shows(""), "without a lease")
		w.shows("lines", "(several: each has a slot)")
		w.take(b, "more", etcdclaims.Slots(1))
		time.Sleep(time.Second)
		w.shows("", "(several: each has a slot)") // the change of ownership
		body = w.shows("key?key=ports", ">3 slots<", "3 held", "api-1", "api-2", ">next<", "Holders")
		w.lacks(body, "without a lease", "no lease", `name="key" value="ports"><input type="hidden" name="fence"`, "slot-1x", "If it died now")
		for slotKey, claim := range held {
			if !strings.Contains(body, ">"+strconv.FormatInt(claim.Fence(), 10)+"<") {
				w.Errorf("the fence %d of %s is not shown", claim.Fence(), slotKey)
			}
		}
		if strings.Index(body, "slot-0") > strings.Index(body, "slot-2") {
			w.Error("slots are not shown in their order")
		}
		w.shows(keyPage(etcdclaims.SlotKey(key, 1)), `href="key?key=ports"`, "Callers wait in line for")

		// The page of the key follows a change of one slot, and the form ends that one alone.
		s := w.opens("key?key=ports")
		time.Sleep(10 * time.Second)
		s.drain()
		ended := etcdclaims.SlotKey(key, 1)
		if answer := w.post(w.releaseForm("key?key=ports", ended)); answer.Code != http.StatusSeeOther {
			w.Fatalf("status %d: %s", answer.Code, answer.Body)
		}
		if s.next(time.Second) != "changed" {
			w.Error("the tab does not notice")
		}
		<-held[ended].Done()
		for slotKey, claim := range held {
			if err := claim.Check(); (err != nil) != (slotKey == ended) {
				w.Errorf("%s: %v", slotKey, err)
			}
		}
		w.shows(keyPage(ended), "page: ", "stuck")

		// Who sends the form of a whole key is told what to do.
		i, err := w.claims.Lookup(w.Context(), key)
		w.ok(err)
		answer := w.post(form("release", "key", key, "fence", strconv.FormatInt(i.Fence, 10), "reason", "r"))
		if answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "name one of them") {
			w.Errorf("status %d: %s", answer.Code, answer.Body)
		}
		w.ok(admin.Resize(w.Context(), w.claims, key, 1))
		time.Sleep(5 * time.Second)
		w.shows("key?key=ports", ">1 slot<", "surplus")
	})
}

func TestShared(t *testing.T) {
	virtually(t, webui.Config{Access: permissive}, func(w *world) {
		const key = "table"
		a, _ := w.client("reader-1")
		b, _ := w.client("reader-2")
		writer, _ := w.client("writer-9")
		first, second := w.take(a, key, etcdclaims.Shared()), w.take(b, key, etcdclaims.Shared())
		w.waits(writer, key)
		body := w.shows("key?key=table", ">shared<", "by 2 callers", "reader-1", "reader-2", "writer-9", ">next<", ">"+strconv.FormatInt(first.Fence(), 10)+" ")
		w.lacks(body, "without a lease", "no lease", "If it died now")
		body = w.shows("claims?prefix=table", ">shared<", "(several: they share it)", "table#shared-")
		w.lacks(body, "no lease")
		w.shows("", "<b>2</b> claims held")

		var own string // the key of the first reader's claim
		for i, err := range w.claims.List(w.Context(), etcdclaims.SharedPrefix(key)) {
			w.ok(err)
			if i.Owner == "reader-1" {
				own = i.Key
			}
		}
		if answer := w.post(w.releaseForm("key?key=table", own)); answer.Code != http.StatusSeeOther {
			w.Fatalf("status %d: %s", answer.Code, answer.Body)
		}
		<-first.Done()
		w.ok(second.Check())
		time.Sleep(3 * time.Second)
		w.shows("key?key=table", "by 1 caller", "reader-2")
		third := w.claim(a, "other") // it changes nothing here
		w.shows(keyPage(own), `href="key?key=table"`, "stuck")
		if answer := w.post(w.releaseForm("key?key=table", key)); answer.Code != http.StatusSeeOther {
			w.Fatalf("status %d: %s", answer.Code, answer.Body)
		}
		<-second.Done()
		w.ok(third.Check())
		w.eventually("the writer has the key", func() bool {
			i, err := w.claims.Lookup(w.Context(), key)
			return err == nil && i.Owner == "writer-9"
		})
		time.Sleep(3 * time.Second)
		w.shows("key?key=table", ">held<", "writer-9", "(several: they share it)") // the last is the term before
	})
}

// Names of holders become no markup, and a release of one of many is denied by its own key.
func TestHostileHolders(t *testing.T) {
	denied := errors.New("not yours")
	cfg := webui.Config{Access: func(_ *http.Request, op webui.Operation) error {
		if op.Action == "release" && !strings.HasSuffix(op.Key, "slot-0") {
			return denied
		}
		return nil
	}}
	virtually(t, cfg, func(w *world) {
		const script = `<script>alert(1)</script>"'&` + "\u202e"
		c, _ := w.client(script)
		names := []string{script, "a#slot-0", "#shared-", "#slot-", "x#slot-1#slot-2", "{{.}}#shared-1"}
		for _, name := range names {
			for range 2 {
				claim := w.take(c, name, option.OwnKey{}, etcdclaims.Slots(2))
				w.ok(claim.Note(w.Context(), []byte(script)))
			}
			w.take(c, "s"+name, option.OwnKey{}, etcdclaims.Shared())
		}
		pages := []string{"claims", "lines", ""}
		for _, name := range names {
			pages = append(pages, keyPage(name), keyPage("s"+name), keyPage(etcdclaims.SlotKey(name, 1)))
		}
		for _, where := range pages {
			body := w.shows(where)
			body = regexp.MustCompile(` value="[^"]*"`).ReplaceAllString(body, "")
			w.lacks(body, "<script>alert", "\u202e", "ZgotmplZ")
		}
		for _, name := range names {
			w.shows(keyPage(name), "2 held", "&lt;script&gt;alert(1)&lt;/script&gt;")
			w.shows(keyPage("s"+name), "by 1 caller")
			if n := strings.Count(w.shows(keyPage(name)), "End this claim"); n != 1 {
				w.Errorf("%q has %d forms, want the one of slot 0", name, n)
			}
		}
	})
}
