package demoetcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// A Secured is a member in this process that accepts TLS only. The common name of a
// client's certificate is its user. Secured signs these certificates itself.
type Secured struct {
	Endpoint string

	dir    string
	key    *ecdsa.PrivateKey
	ca     *x509.Certificate
	server transport.TLSInfo
	member *embed.Etcd
}

// lifetime is that of a certificate.
const lifetime = 24 * time.Hour

// StartSecured starts a member with its data and all certificates in the directory.
func StartSecured(dir string) (*Secured, error) {
	s := &Secured{dir: dir}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	s.ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "demo CA"}, NotAfter: time.Now().Add(lifetime - time.Minute),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if err := s.sign(s.ca, &s.key.PublicKey, "ca.pem"); err != nil {
		return nil, err
	}
	if s.server, err = s.Certificate("etcd"); err != nil {
		return nil, err
	}
	s.server.ClientCertAuth = true
	s.Endpoint = "https://127.0.0.1:0"
	if err := s.Start(); err != nil {
		return nil, err
	}
	s.Endpoint = "https://" + s.member.Clients[0].Addr().String()
	return s, nil
}

// Start starts the member again after Stop, with its data and at its old address. The
// member that was stopped may leave that a moment later.
func (s *Secured) Start() (err error) {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		s.member, err = start(filepath.Join(s.dir, "data"), s.Endpoint, s.server)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begin) > patience {
			return err
		}
	}
}

// Stop stops the member, which keeps its data.
func (s *Secured) Stop() {
	if s.member != nil { // nil if Start has failed
		s.member.Close()
	}
}

// Files returns where the files of a user's certificate are in the directory of a Secured.
func Files(dir, user string) transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: filepath.Join(dir, user+".pem"), KeyFile: filepath.Join(dir, user+"-key.pem"), TrustedCAFile: filepath.Join(dir, "ca.pem"),
	}
}

// Certificate makes a certificate for the user of this name, and returns the files.
func (s *Secured) Certificate(user string) (transport.TLSInfo, error) {
	return s.CertificateUntil(user, s.ca.NotAfter)
}

// CertificateUntil is Certificate with the end of its validity.
func (s *Secured) CertificateUntil(user string, end time.Time) (transport.TLSInfo, error) {
	info := Files(s.dir, user)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return info, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return info, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return info, err
	}
	return info, errors.Join(s.write(user+"-key.pem", "EC PRIVATE KEY", der), s.sign(&x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user}, NotBefore: end.Add(-lifetime), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, &key.PublicKey, user+".pem"))
}

func (s *Secured) sign(c *x509.Certificate, public *ecdsa.PublicKey, name string) error {
	der, err := x509.CreateCertificate(rand.Reader, c, s.ca, public, s.key)
	if err != nil {
		return err
	}
	return s.write(name, "CERTIFICATE", der)
}

func (s *Secured) write(name, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(s.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// A Grant permits a user to read, or to read and write, the keys below a prefix.
type Grant struct {
	Prefix string
	Write  bool
}

// EnableAuth turns on authentication, with the user root and another user with the
// grants.
func (s *Secured) EnableAuth(ctx context.Context, user string, grants ...Grant) (err error) {
	root, err := s.Certificate("root")
	if err != nil {
		return err
	}
	etcd, err := DialTLS(s.Endpoint, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	for _, name := range []string{"root", user} {
		if _, err := etcd.RoleAdd(ctx, name); err != nil {
			return fmt.Errorf("add role %s: %w", name, err)
		}
		if _, err := etcd.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true}); err != nil {
			return fmt.Errorf("add user %s: %w", name, err)
		}
		if _, err := etcd.UserGrantRole(ctx, name, name); err != nil {
			return err
		}
	}
	for _, g := range grants {
		permission := clientv3.PermissionType(clientv3.PermRead)
		if g.Write {
			permission = clientv3.PermissionType(clientv3.PermReadWrite)
		}
		if _, err := etcd.RoleGrantPermission(ctx, user, g.Prefix, clientv3.GetPrefixRangeEnd(g.Prefix), permission); err != nil {
			return err
		}
	}
	_, err = etcd.AuthEnable(ctx)
	return err
}
