package examples_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func testDev(t *testing.T, program string) {
	if err := testetcd.Signals(); err != nil {
		t.Skip(err) // it could not be interrupted
	}
	t.Run("samples", func(t *testing.T) { testSamples(t, program) })
	t.Run("program of the README", func(t *testing.T) { testReadmeProgram(t, program) })
}

// serve runs claimctl-dev, and returns what it prints. It ends without an error when it is
// interrupted.
func serve(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // whose end would kill it
	cmd := exec.CommandContext(ctx, program, append(args, "-listen", "127.0.0.1:0")...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "Interrupt") {
			return said.String()
		}
	}
	t.Fatalf("it has ended, and said %q", said.String())
	return ""
}

func endpointOf(t *testing.T, said string) string {
	t.Helper()
	m := regexp.MustCompile(`ETCDCTL_ENDPOINTS=(\S+)`).FindStringSubmatch(said)
	if m == nil {
		t.Fatalf("it says %q", said)
	}
	return m[1]
}

// The samples are there when it says so.
func testSamples(t *testing.T, program string) {
	said := serve(t, program, "-page", "127.0.0.1:0")
	if !strings.Contains(said, "claimctl doctor") {
		t.Errorf("it says %q", said)
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
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpointOf(t, said)}, Logger: zap.NewNop()})
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
}
