package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// survey looks for what nobody looks after any more.
func (d *doctor) survey(ctx context.Context, claims *etcdclaims.Client) {
	ctx, cancel := context.WithTimeout(ctx, d.commandTimeout)
	defer cancel()
	epoch, err := readEpoch(ctx, d.etcd, claims.Prefix())
	if err != nil {
		d.add(levelError, "epoch", "correct the key, or grant its permission", "%v", err)
	} else {
		d.ok("epoch", "%d", epoch)
	}
	held, zombies, permanent := 0, []string{}, []string{}
	for i, err := range claims.List(ctx, "") {
		if err != nil {
			d.add(levelError, "claims", "see the permissions", "cannot be listed: %v", err)
			return
		}
		held++
		switch {
		case i.Lease == clientv3.NoLease:
			permanent = append(permanent, i.Key)
		case i.Kind == "zombie":
			zombies = append(zombies, i.Key)
		}
	}
	d.ok("claims", "%d keys are held", held)
	if len(zombies) > 0 {
		d.add(levelWarning, "zombies", "look at the handlers: they did not stop when they had to; the keys are free when their leases end", "%s", several(zombies))
	}
	if len(permanent) > 0 {
		d.add(levelWarning, "leases", "another program wrote them: claimctl explain, and claimctl release if nobody needs them", "without a lease, so that they never expire: %s", several(permanent))
	}
	var orphans []string
	for r, err := range claims.Orphans(ctx, "") {
		if err != nil {
			d.add(levelError, "orphans", "see the permissions", "cannot be listed: %v", err)
			return
		}
		orphans = append(orphans, r.Key)
	}
	if len(orphans) == 0 {
		d.ok("orphans", "none")
		return
	}
	d.add(levelWarning, "orphans", "see that a process begins them again; claimctl work ls --state orphaned", "work whose owner died: %s", several(orphans))
}

// several names a few keys and counts the others.
func several(keys []string) string {
	const shown = 3
	if len(keys) <= shown {
		return strings.Join(keys, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(keys[:shown], ", "), len(keys)-shown)
}

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
	if off := max(ahead, behind); off > time.Second {
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

// warnings collects what a client logs.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines
}

func (w *warnings) logger() *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "msg", ConsoleSeparator: " "})
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(w), zapcore.WarnLevel))
}

// Write takes one line of the log.
func (w *warnings) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, strings.TrimSpace(string(line)))
	return len(line), nil
}
