package webui_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/webui"
)

func httpGet(page http.Handler, where string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, where, nil))
	return answer
}

// How late a tick was is shown with its sign, which a clock that is slow makes negative.
func TestExact(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-3 * time.Minute: "-3 min 0 s", -1500 * time.Millisecond: "-1.500 s", 7 * time.Millisecond: "7 ms",
		2*time.Hour + 59*time.Minute: "2 h 59 min", 125 * time.Second: "2 min 5 s", 49 * time.Hour: "2 d 1 h",
	} {
		if got := webui.Exact(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func keyNumber(i int) string { return fmt.Sprintf("k/%06d", i) }

func keyPage(key string) string { return "key?" + url.Values{"key": {key}}.Encode() }

// link returns where a link of a page leads, "" if there is none.
func link(body, rel string) string {
	found := regexp.MustCompile(`<a rel="` + rel + `" href="([^"]*)"`).FindStringSubmatch(body)
	if found == nil {
		return ""
	}
	where, err := url.PathUnescape(html.UnescapeString(found[1]))
	if err != nil {
		return err.Error()
	}
	return where
}
