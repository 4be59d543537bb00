package browser_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/webui"
)

// promptly is how soon a take-over is to be seen.
const promptly = 500 * time.Millisecond

func TestTakeOverIsSeen(t *testing.T) {
	for _, where := range []string{"claims?prefix=orders/", "key?key=orders/42"} {
		t.Run(strings.TrimRight(where, "?/=42"), func(t *testing.T) {
			s := newStage(t, webui.Config{})
			s.takesOver(where, "orders/42")
		})
	}
}

// A take-over is seen as soon when there are many claims.
func TestTakeOverIsSeenAmongTenThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("ten thousand claims")
	}
	s := newStage(t, webui.Config{})
	s.claimMany(9_999)
	s.takesOver("claims?prefix=k/", "k/00000")
	s.shows("1–100 of 10\u202f000 claims", 10*time.Second)
}

// claimMany claims the keys from k/00001 on.
func (s *stage) claimMany(n int) {
	s.Helper()
	many := s.client("many")
	for i := 1; i <= n; i += 50 { // as many as fit into a transaction
		var keys []string
		for k := i; k < min(i+50, n+1); k++ {
			keys = append(keys, fmt.Sprintf("k/%05d", k))
		}
		_, err := many.TryAcquireAll(s.Context(), keys)
		s.ok(err)
	}
}

// takesOver lets a key change hands, and measures until a tab shows that.
func (s *stage) takesOver(where, key string) {
	s.Helper()
	a, b := s.client("api-7"), s.client("api-8")
	held := s.claim(a, key)
	s.opens(where)
	s.shows("api-7", 10*time.Second)
	s.shows(strconv.FormatInt(held.Fence(), 10), 10*time.Second)
	var took []time.Duration
	for i := range 6 {
		claimant := b
		if i%2 == 1 {
			claimant = a
		}
		next := s.waits(claimant, key)
		time.Sleep(time.Second) // the page may have shown that just now
		begun := time.Now()
		s.ok(held.Release(s.Context()))
		held = <-next
		s.until(`document.querySelector("main").innerText.includes("`+strconv.FormatInt(held.Fence(), 10)+`")`, 10*time.Second)
		took = append(took, time.Since(begun).Round(time.Millisecond))
	}
	s.Logf("six take-overs were seen after %v", took)
	if soonest := slices.Min(took); soonest > promptly { // others may have the machine at times
		s.Errorf("a take-over was seen after %v, want %v", soonest, promptly)
	}
}

// What a person has opened, typed or focused stays through updates.
func TestUpdatesDoNotDisturb(t *testing.T) {
	s := newStage(t, webui.Config{Access: permissive})
	a, b := s.client("api-7"), s.client("api-8")
	s.claim(a, "orders/42")
	s.opens("key?key=orders/42")
	s.do(chromedp.Click("details summary"), chromedp.SendKeys(`input[name="reason"]`, "it is stuc"))
	s.waits(b, "orders/42")
	s.shows("waits", 5*time.Second)
	s.do(chromedp.KeyEvent("k"), chromedp.KeyEvent(kb.Enter))
	s.shows("The term was ended.", 5*time.Second)
	s.shows("it is stuck", 5*time.Second)
	s.shows("api-8", 5*time.Second)
}

// A form that somebody fills in stays as it is, with the focus, when the key changes hands. It is
// about the earlier term then: it says so, and the page does not end another one.
func TestHalfFilledFormOutlivesTerm(t *testing.T) {
	s := newStage(t, webui.Config{Access: permissive})
	a, b := s.client("api-7"), s.client("api-8")
	held := s.claim(a, "orders/42")
	s.opens("key?key=orders/42")
	s.do(chromedp.Click("details summary"), chromedp.SendKeys(`input[name="reason"]`, "it is stuc"))
	for i, c := range []*etcdclaims.Client{b, a, b} { // the form stays through more than one term
		next := s.waits(c, "orders/42")
		s.ok(held.Release(t.Context()))
		held = <-next
		s.shows(strconv.FormatInt(held.Fence(), 10), 5*time.Second)
		s.until(`document.querySelectorAll("details.act").length === 2`, 5*time.Second)
		if i == 1 {
			_, err := evaluate[any](s, `document.activeElement.blur()`)
			s.ok(err)
		}
	}
	s.do(chromedp.Focus(`input[name="reason"]`), chromedp.KeyEvent("k"))
	s.until(`document.querySelector('input[name="reason"]').value === "it is stuck"`, 5*time.Second)
	s.until(`document.querySelector("details.act").open && document.activeElement.name === "reason"`, 5*time.Second)
	s.until(`getComputedStyle(document.querySelector("[data-outdated] form"), "::before")
		.content.includes("has changed since")`, 5*time.Second)
	s.do(chromedp.KeyEvent(kb.Enter))
	s.shows("is over", 5*time.Second)
	if err := held.Check(); err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	s.faults = nil // it has refused
	s.mu.Unlock()
}

// The page of a key shows what an action did as soon as it is served, or promptly.
func TestActionIsSeen(t *testing.T) {
	s := newStage(t, webui.Config{Access: permissive})
	a, b := s.client("api-7"), s.client("api-8")
	held := s.claim(a, "orders/42")
	var took []time.Duration
	for i := range 6 {
		next := s.waits([]*etcdclaims.Client{b, a}[i%2], "orders/42")
		s.opens("key?key=orders/42")
		s.shows(strconv.FormatInt(held.Fence(), 10), 5*time.Second)
		_, err := evaluate[any](s, `document.querySelector("details.act").open = true`) // a click can miss what an update moves
		s.ok(err)
		s.do(chromedp.SendKeys(`input[name="reason"]`, "it is stuck"), chromedp.Click("button.danger"))
		s.until(`document.querySelector(".banner.good") !== null`, 10*time.Second)
		begun := time.Now()
		held = <-next
		s.until(`document.querySelector("dd.num").innerText === "`+strconv.FormatInt(held.Fence(), 10)+`"`, 10*time.Second)
		took = append(took, time.Since(begun).Round(time.Millisecond))
	}
	s.Logf("six actions were seen after %v", took)
	if soonest := slices.Min(took); soonest > promptly {
		s.Errorf("an action was seen after %v, want %v", soonest, promptly)
	}
}

func TestEtcdAway(t *testing.T) {
	s := newStage(t, webui.Config{})
	s.claim(s.client("api-7"), "orders/42")
	s.opens("claims")
	s.shows("orders/42", 10*time.Second)
	s.etcd.Stop(t)
	s.shows("etcd does not answer", 30*time.Second)
	s.shows("orders/42", 10*time.Second) // as it was
	s.etcd.Restart(t)
	s.until(`!document.body.innerText.includes("etcd does not answer")`, 30*time.Second)
	s.claim(s.client("api-8"), "orders/43")
	s.shows("orders/43", 10*time.Second)
}

func TestServerAway(t *testing.T) {
	s := newStage(t, webui.Config{MaxTabs: 1})
	s.opens("claims")
	other, cancel := chromedp.NewContext(s.ctx)
	defer cancel()
	s.ok(chromedp.Do(other, chromedp.Navigate(s.url+"claims")))
	_, err := chromedp.Run(other, chromedp.Poll[bool](`document.getElementById("live").textContent.startsWith("not live")`))
	s.ok(err)
	s.page.Close()
	s.shows("not live", 10*time.Second)
	s.mu.Lock()
	s.faults = nil // it has refused
	s.mu.Unlock()
}

func TestKeyboard(t *testing.T) {
	s := newStage(t, webui.Config{})
	c := s.client("many")
	for i := range 101 {
		s.claim(c, "k/"+strconv.Itoa(1000+i))
	}
	s.opens("claims?prefix=k")
	s.shows("1–100 of 101 claims", 10*time.Second)
	for _, step := range []struct {
		keys []string
		want string
	}{
		{[]string{"n"}, "101–101 of 101 claims"},
		{[]string{"p"}, "1–100 of 101 claims"},
	} {
		for _, key := range step.keys {
			s.do(chromedp.KeyEvent(key))
		}
		s.shows(step.want, 5*time.Second)
		s.until(isLive, 5*time.Second)
	}
	s.do(chromedp.KeyEvent("/"))
	s.until(`document.activeElement.name === "prefix"`, 10*time.Second)
	// The driver types the slash though the page has prevented it.
	_, err := evaluate[any](s, `document.activeElement.select()`)
	s.ok(err)
	s.do(chromedp.KeyEvent("k/1050"), chromedp.KeyEvent(kb.Enter))
	s.shows("1–1 of 1 claim", 5*time.Second)
	s.until(isLive, 5*time.Second)
	s.do(chromedp.KeyEvent(kb.Tab))
	s.until(`document.activeElement.className === "skip"`, 10*time.Second)
}

// unfit is a script that returns what does not fit a phone: pages of the menu that are out of
// sight, cells of tables side by side or empty, headings of tables, texts of pictures that are cut, and
// short words that are broken.
const unfit = `(() => {
	const found = [], words = document.createRange();
	for (const a of document.querySelectorAll("header nav a")) {
		const at = a.getBoundingClientRect();
		if (at.left < 0 || at.right > innerWidth) found.push("menu: " + a.innerText);
	}
	const rows = new Set([...document.querySelectorAll("header nav a")].map((a) => a.getBoundingClientRect().top));
	if (rows.size > 2) found.push("menu: " + rows.size + " rows");
	for (const row of document.querySelectorAll("tbody tr")) {
		const cells = [...row.cells].map((c) => c.getBoundingClientRect()).filter((c) => c.height);
		if (cells.some((c, i) => i && c.top < cells[i - 1].bottom)) found.push("side by side: " + row.innerText);
	}
	for (const cell of document.querySelectorAll("td[data-th]")) {
		if (cell.textContent.trim() === "" && !cell.children.length && cell.getBoundingClientRect().height) found.push("empty: " + cell.dataset.th);
	}
	for (const text of document.querySelectorAll("svg text")) {
		const at = text.getBoundingClientRect(), picture = text.closest("svg").getBoundingClientRect();
		if (at.left < 0 || at.right > innerWidth || at.left < picture.left - 1 || at.right > picture.right + 1) found.push("picture: " + text.textContent);
	}
	for (const th of document.querySelectorAll("th")) if (th.getBoundingClientRect().right > 0) found.push("heading: " + th.innerText);
	const walk = document.createTreeWalker(document.getElementById("content"), NodeFilter.SHOW_TEXT);
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		for (const word of n.data.matchAll(/[A-Za-z]{2,16}/g)) {
			words.setStart(n, word.index);
			words.setEnd(n, word.index + word[0].length);
			const before = n.data.charAt(word.index - 1), after = n.data.charAt(word.index + word[0].length);
			if (words.getClientRects().length > 1 && /^\s|^$/.test(before) && /^\s|^$/.test(after)) found.push("broken: " + word[0]);
		}
	}
	return found;
})()`

// No page is wider than a phone. Tables are cards there, and the menu shows all pages.
func TestPhone(t *testing.T) {
	s := newStage(t, webui.Config{Access: permissive, Refusals: new(webui.Refusals)})
	s.drama()
	s.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	for _, where := range everyPage {
		s.opens(where)
		wide, err := evaluate[int](s, `document.documentElement.scrollWidth`)
		s.ok(err)
		if wide > 360 {
			t.Errorf("%s is %d pixels wide", where, wide)
		}
		found, err := evaluate[[]string](s, unfit)
		s.ok(err)
		for _, text := range found {
			t.Errorf("%s: %s", where, text)
		}
	}
}

// Tables that are cards remain tables for screen readers.
func TestCardsAreTables(t *testing.T) {
	s := newStage(t, webui.Config{})
	s.claim(s.client("api-7"), "orders/42")
	s.do(chromedp.EmulateViewport(390, 740, chromedp.EmulateMobile))
	s.opens("claims")
	nodes, err := chromedp.Call(s.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	s.ok(err)
	roles := make(map[string]int)
	for _, n := range nodes.Nodes {
		if n.Role != nil && !n.Ignored {
			roles[strings.Trim(string(n.Role.Value), `"`)]++
		}
	}
	for role, want := range map[string]int{"table": 1, "row": 2, "columnheader": 6, "cell": 6} {
		if roles[role] != want {
			t.Errorf("%d nodes of the role %s, want %d: %v", roles[role], role, want, roles)
		}
	}
}

// Without JavaScript every page and every action works.
func TestWithoutScript(t *testing.T) {
	s := newStage(t, webui.Config{Access: permissive})
	held := s.claim(s.client("api-7"), "orders/42")
	call(s, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	s.do(chromedp.Navigate(s.url+"claims"), chromedp.Click(`td.key a`), chromedp.WaitVisible(`details summary`),
		chromedp.Click("details summary"), chromedp.SendKeys(`input[name="reason"]`, "it is stuck"), chromedp.Click("button.danger"), chromedp.WaitVisible(`.banner.good`))
	<-held.Done()
}

// A trial of writes that is asked for on the page shows what it has found.
func TestTrial(t *testing.T) {
	s := newStage(t, webui.Config{Access: permissive})
	s.opens("health")
	s.shows("None yet.", 10*time.Second)
	s.do(chromedp.Click(`section[aria-label="Doctor"] form button`), chromedp.WaitVisible(`.banner.good`),
		chromedp.Click(`section[aria-label="Doctor"] details:last-of-type summary`))
	s.shows("a lease and a claim took", 10*time.Second)
}

// Nothing that somebody has named becomes a part of the page.
func TestHostileNames(t *testing.T) {
	s := newStage(t, webui.Config{Access: permissive})
	names := []string{`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`, "a\u202egnp.exe", strings.Repeat("k", 1024)}
	for _, name := range names {
		c := s.client(name)
		claim := s.claim(c, name)
		s.ok(claim.Note(t.Context(), []byte(name)))
	}
	s.waits(s.client(strings.Repeat("w", 256)), names[0])
	for _, where := range []string{"", "claims", "sessions"} {
		s.opens(where)
	}
	s.opens("claims")
	for i := range names {
		s.opens("claims")
		s.do(chromedp.Click(`tbody tr:nth-child(` + strconv.Itoa(i+1) + `) a`))
		s.until(`document.querySelector("dd .tag.good").innerText === "held"`, 5*time.Second)
		s.until(isLive, 10*time.Second) // its script waits for its style sheet, before which it has other widths
		wide, err := evaluate[bool](s, `document.documentElement.scrollWidth > innerWidth`)
		s.ok(err)
		if wide {
			t.Errorf("the page of name %d is wider than the window", i)
		}
	}
}
