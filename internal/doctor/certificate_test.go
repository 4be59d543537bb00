package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// examineBy returns an examination of a member by a client with the certificate of the files.
func examineBy(t *testing.T, s *testetcd.Secured, files transport.TLSInfo) *Examination {
	t.Helper()
	settings, err := files.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	claims := claimtest.NewClient(t, testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
		tb.Helper()
		return testetcd.NewClient(tb, clientv3.Config{Endpoints: []string{s.Endpoint}, TLS: settings})
	}), etcdclaims.Config{})
	return &Examination{Claims: claims, Limit: 100, Leases: 100, Patience: 5 * time.Second, Answer: 2 * time.Second, TLS: settings}
}

// What ends a handshake is named, and so is a certificate that is about to expire.
func TestCertificates(t *testing.T) {
	t.Parallel()
	s, other := testetcd.StartSecured(t), testetcd.StartSecured(t)
	files := func(s *testetcd.Secured, user string, left time.Duration) transport.TLSInfo {
		t.Helper()
		return s.CertificateUntil(t, user, time.Now().Add(left))
	}
	member := "endpoint " + s.Endpoint
	t.Run("valid", func(t *testing.T) {
		e := examineBy(t, s, files(s, "app", 23*time.Hour))
		e.Examine(t.Context(), false)
		e.has(t, OK, "epoch", "0")
		e.has(t, OK, "certificate", "the one of this client, CN=app, is valid until 20")
		e.has(t, OK, "certificate", "the one of "+s.Endpoint+" is valid until 20")
	})
	t.Run("about to expire", func(t *testing.T) {
		e := examineBy(t, s, files(s, "late", time.Hour))
		e.Examine(t.Context(), false)
		e.has(t, OK, "epoch", "0")
		e.has(t, Warning, "certificate", "the one of this client, CN=late, expires in ")
	})
	t.Run("expired", func(t *testing.T) {
		e := examineBy(t, s, files(s, "gone", -time.Minute))
		e.Examine(t.Context(), false)
		e.hasNone(t, "epoch")
		e.has(t, Error, "certificate", "the one of this client, CN=gone, has expired at 20")
		if !slices.ContainsFunc(e.Findings, func(f Finding) bool {
			return f.Check == member && (strings.Contains(f.Detail, "tls: expired certificate") ||
				strings.Contains(f.Detail, "as it does when it refuses the client's certificate"))
		}) {
			t.Errorf("%+v", e.Findings)
		}
	})
	t.Run("wrong CA", func(t *testing.T) {
		info := files(s, "app", 23*time.Hour)
		info.TrustedCAFile = files(other, "app", 23*time.Hour).TrustedCAFile
		e := examineBy(t, s, info)
		e.Examine(t.Context(), false)
		e.hasNone(t, "epoch")
		e.has(t, Error, member, "does not answer: ")
		e.has(t, Error, member, "certificate signed by unknown authority")
	})
}

// doctor warns 14 days before the end, and of certificates that live shorter when a fifth of
// their lifetime is left.
func TestCertificateLeft(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		from, until time.Duration
		want        Level
		text        string
	}{
		{-300 * day, 15 * day, OK, "the one of h is valid until 2026-03-16T12:00:00Z"},
		{-300 * day, 13 * day, Warning, "the one of h expires in 312h0m0s, at 2026-03-14T12:00:00Z"},
		{-19 * time.Hour, 5 * time.Hour, OK, "is valid until"},
		{-20 * time.Hour, 4 * time.Hour, Warning, "expires in 4h0m0s"},
		{-300 * day, 0, Error, "has expired at 2026-03-01T12:00:00Z"},
		{time.Hour, 300 * day, Error, "is valid from 2026-03-01T13:00:00Z on"},
	} {
		var e Examination
		e.certificate("of h", &x509.Certificate{NotBefore: now.Add(c.from), NotAfter: now.Add(c.until)}, now)
		e.has(t, c.want, "certificate", c.text)
		if (e.Findings[0].Remedy == "") != (c.want == OK) {
			t.Errorf("%+v", e.Findings)
		}
	}
	var e Examination
	e.certificate("of h", nil, now)
	e.TLS = &tls.Config{Certificates: []tls.Certificate{{}}}
	e.ownCertificates()
	if len(e.Findings) > 0 {
		t.Errorf("%+v", e.Findings)
	}
}

// Endpoints of two clusters are named, each with its cluster.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	of := func(endpoint string, cluster uint64) answer {
		return answer{endpoint: endpoint, status: &clientv3.StatusResponse{Header: &pb.ResponseHeader{ClusterId: cluster}}}
	}
	var e Examination
	e.clusters([]answer{of("h1", 10), of("h2", 10), {endpoint: "h4", err: tls.AlertError(1)}})
	if len(e.Findings) > 0 {
		t.Errorf("one cluster: %+v", e.Findings)
	}
	e.clusters([]answer{of("h1", 11), of("h2", 10), of("h3", 11)})
	e.has(t, Error, "cluster", "the endpoints belong to 2 clusters: a (h2), b (h1, h3)")

	one, two := testetcd.Start(t), testetcd.Start(t)
	claims := claimtest.NewClient(t, testclaims.EtcdFunc(func(tb testing.TB) *clientv3.Client {
		tb.Helper()
		return testetcd.NewClient(tb, clientv3.Config{Endpoints: append(one.Endpoints(), two.Endpoints()...)})
	}), etcdclaims.Config{})
	real := &Examination{Claims: claims, Limit: 100, Leases: 100, Patience: 5 * time.Second, Answer: 2 * time.Second}
	real.Examine(t.Context(), false)
	real.has(t, Error, "cluster", "the endpoints belong to 2 clusters: ")
}
