package testetcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// A Secured is a member in this process that accepts TLS only. The common name of a
// client's certificate is its user. Secured signs these certificates itself.
type Secured struct {
	Endpoint string

	dir string
	key *ecdsa.PrivateKey
	ca  *x509.Certificate
}

// lifetime is that of a certificate.
const lifetime = 24 * time.Hour

// StartSecured starts a member that stops when the test ends.
func StartSecured(tb testing.TB) *Secured {
	tb.Helper()
	s := &Secured{dir: tb.TempDir(), key: newKey(tb)}
	s.ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(lifetime - time.Minute),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	s.sign(tb, s.ca, &s.key.PublicKey, "ca.pem")

	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.UnsafeNoFsync = filepath.Join(s.dir, "data"), "fatal", true
	clients, peers := []url.URL{{Scheme: "https", Host: "127.0.0.1:0"}}, []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = clients, clients
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peers, peers
	cfg.ClientTLSInfo = s.Certificate(tb, "etcd")
	cfg.ClientTLSInfo.ClientCertAuth = true
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.EnableGRPCGateway = false // nobody speaks JSON to it
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		tb.Fatal("testetcd: start with TLS: ", err)
	}
	tb.Cleanup(member.Close)
	select {
	case <-member.Server.ReadyNotify():
	case err := <-member.Err():
		tb.Fatal("testetcd: start with TLS: ", err)
	case <-time.After(patience):
		tb.Fatal("testetcd: start with TLS: not ready after ", patience)
	}
	s.Endpoint = "https://" + member.Clients[0].Addr().String()
	return s
}

// Certificate makes a certificate for the user of this name, and returns the files.
func (s *Secured) Certificate(tb testing.TB, user string) transport.TLSInfo {
	tb.Helper()
	return s.CertificateUntil(tb, user, s.ca.NotAfter)
}

// CertificateUntil is Certificate with the end of its validity.
func (s *Secured) CertificateUntil(tb testing.TB, user string, end time.Time) transport.TLSInfo {
	tb.Helper()
	key := newKey(tb)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return transport.TLSInfo{
		KeyFile: s.write(tb, user+"-key.pem", "EC PRIVATE KEY", der),
		CertFile: s.sign(tb, &x509.Certificate{
			SerialNumber: serial, Subject: pkix.Name{CommonName: user}, NotBefore: end.Add(-lifetime), NotAfter: end,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}, &key.PublicKey, user+".pem"),
		TrustedCAFile: filepath.Join(s.dir, "ca.pem"),
	}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func (s *Secured) sign(tb testing.TB, c *x509.Certificate, public *ecdsa.PublicKey, name string) (path string) {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, s.ca, public, s.key)
	if err != nil {
		tb.Fatal(err)
	}
	return s.write(tb, name, "CERTIFICATE", der)
}

func (s *Secured) write(tb testing.TB, name, kind string, der []byte) (path string) {
	tb.Helper()
	path = filepath.Join(s.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}
