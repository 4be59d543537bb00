package webui_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/webui"
)

// HTTP/2 resets a stream whose deadline for writes passes, also if nothing is written.
func TestQuietStreamStays(t *testing.T) {
	defer webui.SetStreamTimes(300*time.Millisecond, 900*time.Millisecond)()

	page, err := webui.New(without(t), webui.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(page)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	defer page.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events?page=refusals", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.ProtoMajor != 2 || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, status %d", answer.Proto, answer.StatusCode)
	}
	lines, alive := bufio.NewScanner(answer.Body), 0
	for alive < 2 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), ":") {
			alive++
		}
	}
	if alive < 2 {
		t.Errorf("the stream ended after %d signs of life: %v", alive, lines.Err())
	}
}
