package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/etcdclaims/claims/internal/clock"
	"github.com/etcdclaims/claims/internal/explain"
)

// mostNotice is how long before the end of a certificate doctor begins to warn. For those
// that are renewed more often it is a fifth of their lifetime.
const mostNotice = 14 * 24 * time.Hour

// clientCertificates returns the certificates of TLS.
func (e *Examination) clientCertificates() ([]tls.Certificate, error) {
	switch {
	case e.TLS == nil:
		return nil, nil
	case e.TLS.GetClientCertificate == nil:
		return e.TLS.Certificates, nil
	}
	c, err := e.TLS.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil {
		return nil, err
	}
	return []tls.Certificate{*c}, nil
}

// ownCertificates judges the certificates of TLS.
func (e *Examination) ownCertificates() {
	own, err := e.clientCertificates()
	if err != nil {
		e.Add(Error, "certificate", "see the files of the certificate and its key", "that of this client cannot be read: %v", err)
	}
	for _, c := range own {
		if leaf := leafOf(c); leaf != nil {
			e.certificate("of this client, "+leaf.Subject.String()+",", leaf, clock.Clock{}.Time())
		}
	}
}

// leafOf returns the certificate itself, without those that it is signed by.
func leafOf(c tls.Certificate) *x509.Certificate {
	if c.Leaf != nil || len(c.Certificate) == 0 {
		return c.Leaf
	}
	leaf, _ := x509.ParseCertificate(c.Certificate[0]) // the handshake shows an error
	return leaf
}

// certificate judges how long a certificate is valid. A nil one is not there.
func (e *Examination) certificate(whose string, c *x509.Certificate, now time.Time) {
	if c == nil {
		return
	}
	const remedy = "renew it, and see that its program uses the new one: after its end no connection can be made"
	left := c.NotAfter.Sub(now)
	switch {
	case left <= 0:
		e.Add(Error, "certificate", remedy, "the one %s has expired at %s", whose, explain.Stamp(c.NotAfter))
	case now.Before(c.NotBefore):
		e.Add(Error, "certificate", "look at the clocks of this host and of the one that issued it",
			"the one %s is valid from %s on", whose, explain.Stamp(c.NotBefore))
	case left < min(mostNotice, c.NotAfter.Sub(c.NotBefore)/5):
		e.Add(Warning, "certificate", remedy, "the one %s expires in %s, at %s", whose, left.Round(time.Second), explain.Stamp(c.NotAfter))
	default:
		e.well("certificate", "the one %s is valid until %s", whose, explain.Stamp(c.NotAfter))
	}
}
