package webui_test

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// shownAfter asks for a page until it is as wanted, and returns how long that took.
func shownAfter(t *testing.T, page *webui.Handler, where string, is func(body string) bool) time.Duration {
	t.Helper()
	begun, body := time.Now(), ""
	for time.Since(begun) < 30*time.Second {
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest("GET", "/ops/claims/"+where, nil))
		if body = answer.Body.String(); is(body) {
			return time.Since(begun)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s does not show it:\n%s", where, body)
	return 0
}

// saysAway reports whether a page says that etcd does not answer.
func saysAway(body string) bool { return strings.Contains(body, `role="alert"><b>etcd `) }

// silent counts the members that Health shows without an answer, and all that it names.
func silent(body string) (silent, named int) {
	_, table, _ := strings.Cut(body, ">Endpoint")
	table, _, _ = strings.Cut(table, "</table>")
	return strings.Count(table, "no answer"), len(regexp.MustCompile(`data-id="http://127\.[0-9.]+:\d+"`).FindAllString(table, -1))
}

// When two of three members are gone, the page says so within two seconds, and Health shows
// soon which two: also to somebody who comes only then. The bounds have room for a busy machine:
// the page's own timetable is what TestUrgentReadsAreOnTime checks.
func TestHealthInOutage(t *testing.T) {
	members := testetcd.StartProcessCluster(t, 3, testetcd.NoSync())
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoints()...)
	}
	open := func() *webui.Handler {
		etcd := testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
			tb.Helper()
			return testetcd.NewClient(tb, clientv3.Config{Endpoints: endpoints})
		})
		claims := claimtest.NewClient(t, etcd, etcdclaims.Config{Owner: "page"})
		page, err := webui.New(claims, webui.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(page.Close)
		return page
	}
	page := open()
	well := func(body string) bool {
		none, named := silent(body)
		return none == 0 && named == 3 && !saysAway(body)
	}
	away := func(body string) bool { return saysAway(body) }
	two := func(body string) bool { none, named := silent(body); return none == 2 && named == 3 }
	for _, outage := range []struct {
		name       string
		begin, end func(*testetcd.Process)
	}{
		{"stopped", func(p *testetcd.Process) { p.Pause(t) }, func(p *testetcd.Process) { p.Resume(t) }},
		{"killed", func(p *testetcd.Process) { p.Kill(t) }, func(p *testetcd.Process) { p.Restart(t) }},
	} {
		if outage.name == "killed" && testing.Short() {
			continue
		}
		shownAfter(t, page, "", func(body string) bool { return strings.Contains(body, "members that answer: 3 of 3") })
		shownAfter(t, page, "health", well)
		for _, m := range members[1:] {
			outage.begin(m)
		}
		begun := time.Now()
		said := shownAfter(t, page, "", away)
		shownAfter(t, page, "health", two)
		named, late := time.Since(begun), shownAfter(t, open(), "health", two)
		t.Logf("%s: said after %v, named after %v, to one who comes late after %v", outage.name, said, named, late)
		if said > 5*time.Second {
			t.Errorf("%s: the page says so after %v", outage.name, said)
		}
		if named > 8*time.Second || late > 8*time.Second {
			t.Errorf("%s: Health names the members after %v, to one who comes late after %v", outage.name, named, late)
		}
		for _, m := range members[1:] {
			outage.end(m)
		}
	}
	t.Logf("well again after %v", shownAfter(t, page, "health", well))
}
