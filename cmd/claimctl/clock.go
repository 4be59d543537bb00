package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// clock compares the clock of this host with that of a member, as its answers to
// HTTP show it: in full seconds. Where the member does not speak HTTP nothing is
// found.
func (d *doctor) clock(ctx context.Context, endpoint string) {
	ctx, cancel := context.WithTimeout(ctx, d.dialTimeout)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: d.tls(), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		return
	}
	before := time.Now()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return
	}
	after := time.Now()
	_ = resp.Body.Close()
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	// The member's clock was between theirs and a second later, at a time between
	// before and after.
	ahead, behind := theirs.Sub(after), before.Sub(theirs.Add(time.Second))
	off := max(ahead, behind)
	if off > time.Second {
		d.add(levelWarning, "clock", "synchronize the clocks: schedules follow that of their owner, claims do not depend on it",
			"this host and %s differ by at least %s", endpoint, off.Round(time.Second))
	}
}

// tls is the configuration for requests beside etcd's own.
func (d *doctor) tls() *tls.Config {
	spec := &clientv3.ConfigSpec{Endpoints: d.etcd.Endpoints(), Secure: &clientv3.SecureConfig{
		Cert: d.cert, Key: d.key, Cacert: d.caCert, ServerName: d.serverName, InsecureTransport: d.insecureTransport, InsecureSkipVerify: d.insecureSkipVerify,
	}}
	cfg, err := clientv3.NewClientConfig(spec, zap.NewNop())
	if err != nil {
		return nil
	}
	return cfg.TLS
}
