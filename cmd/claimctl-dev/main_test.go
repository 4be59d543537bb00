package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

// The samples are there when it says so, and it ends when it is interrupted.
func TestDev(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-listen", "127.0.0.1:0", "-page", "127.0.0.1:0"}, out)
		_ = out.CloseWithError(io.EOF)
		done <- err
	}()
	b := make([]byte, 4096)
	n, err := in.Read(b)
	if err != nil {
		t.Fatal(err, <-done)
	}
	said := string(b[:n])
	m := regexp.MustCompile(`ETCDCTL_ENDPOINTS=(\S+)`).FindStringSubmatch(said)
	if m == nil || !strings.Contains(said, "claimctl doctor") {
		t.Fatalf("it says %q", said)
	}
	at := regexp.MustCompile(`http://127.0.0.1:\d+/`).FindString(said)
	resp, err := http.Get(at + "claims")
	if err != nil {
		t.Fatalf("the page at %q: %v", at, err)
	}
	html, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.Contains(string(html), "orders/1") {
		t.Errorf("the page at %q: %v: %s", at, err, html)
	}
	http.DefaultClient.CloseIdleConnections()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: m[1:], Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := etcdclaims.New(etcd, etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Lookup(t.Context(), "orders/1")
	if err != nil || !info.Held || info.Owner != "api-7" {
		t.Errorf("%+v, %v", info, err)
	}
	r, ok, err := testwork.Of(c).Record(t.Context(), "invoices/4")
	if err != nil || !ok || r.State != work.StateOrphaned {
		t.Errorf("%+v, %v", r, err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	_ = etcd.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"-listen", "127.0.0.1:0", "-page=", "-empty"}, out) }()
	if _, err := in.Read(make([]byte, 4096)); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
