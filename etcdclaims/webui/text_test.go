package webui_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
)

func httpGet(page http.Handler, where string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, where, nil))
	return answer
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
