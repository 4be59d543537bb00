package main

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/testetcd"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// The certificates and the role of the manual are made by its own commands, with
// openssl and etcdctl, and suffice for what it says. etcdctl also takes the snapshot.
func TestManualCertificates(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"openssl", "etcdctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs openssl and etcdctl (Debian: apt-get install etcd-client)")
		}
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	shell := func(env []string, lines ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-euc", strings.Join(lines, "\n"))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(lines, "\n"), err, out)
		}
	}
	var openssl, etcdctl, claimctl []string
	for _, line := range steps(t, "## Certificates") {
		switch words(line)[0] {
		case "etcdctl", "for":
			etcdctl = append(etcdctl, line)
		case "claimctl":
			claimctl = words(line)[1:]
		default:
			openssl = append(openssl, line)
		}
	}
	shell(nil, openssl...)
	again := strings.Join(openssl[1:], "\n") // "in the same way"
	shell(nil, strings.ReplaceAll(again, "orders-api", "root"))
	member := sync.OnceFunc(func() { shell(nil, strings.ReplaceAll(again, "orders-api", "member")) })
	server := testetcd.Start(t, testetcd.Tweak(func(cfg *embed.Config) {
		for _, urls := range [][]url.URL{cfg.ListenClientUrls, cfg.AdvertiseClientUrls} {
			urls[0].Scheme = "https"
		}
		again = strings.ReplaceAll(again, "extendedKeyUsage=clientAuth", "subjectAltName=IP:"+cfg.ListenClientUrls[0].Hostname())
		member()
		cfg.ClientTLSInfo = transport.TLSInfo{CertFile: file("member.pem"), KeyFile: file("member-key.pem"), TrustedCAFile: file("ca.pem"), ClientCertAuth: true}
		cfg.EnableGRPCGateway = false
	}))
	endpoint := server.Endpoints()[0]
	root := []string{
		"ETCDCTL_API=3", "ETCDCTL_ENDPOINTS=" + endpoint, "ETCDCTL_CACERT=ca.pem", "ETCDCTL_CERT=root.pem", "ETCDCTL_KEY=root-key.pem",
	}
	shell(root, etcdctl...)
	shell(root, steps(t, "## Back-up and restore")[0], "test -s claims.db")
	for i, arg := range claimctl {
		if strings.HasSuffix(arg, ".pem") {
			claimctl[i] = file(arg)
		}
	}
	var out, err bytes.Buffer
	code := execute(t.Context(), append([]string{"--endpoints", endpoint, "--cacert", file("ca.pem")}, claimctl...), strings.NewReader(""), &out, &err)
	if code > 1 || !strings.Contains(out.String(), "suffice under /etcdclaims/ for acquire, wait") {
		t.Errorf("exit code %d: %s%s", code, out.String(), err.String())
	}
}
