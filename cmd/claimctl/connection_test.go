package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/dns/dnsmessage"
)

// answerSRV serves DNS: each name of the table has one SRV record, of a port of this machine.
func answerSRV(t *testing.T, host [4]byte, ports map[string]uint16) (address string) {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFromUDP(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
			header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
			switch port, is := ports[q.Name.String()]; {
			case is && q.Type == dnsmessage.TypeSRV:
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.SRVResource{Port: port, Target: dnsmessage.MustNewName("etcd.test.")}}}
			case q.Name.String() == "etcd.test." && q.Type == dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: host}}}
			case q.Name.String() != "etcd.test.":
				m.RCode = dnsmessage.RCodeNameError
			}
			if out, err := m.Pack(); err == nil {
				_, _ = c.WriteToUDP(out, from)
			}
		}
	}()
	return c.LocalAddr().String()
}

// The endpoints of a domain are found by its SRV records, as etcdctl finds them.
func TestDiscovery(t *testing.T) {
	w := newWorld(t)
	w.claim(w.client("a"), "k")
	server, err := netip.ParseAddrPort(strings.TrimPrefix(w.flags[1], "http://"))
	w.noErr(err)
	dns := answerSRV(t, server.Addr().As4(), map[string]uint16{
		"_etcd-client._tcp.claims.test.":      server.Port(),
		"_etcd-client-blue._tcp.claims.test.": server.Port(),
	})
	old := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = old })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", dns)
	}}
	w.flags = w.flags[2:]
	for _, args := range [][]string{
		{"--discovery-srv", "claims.test"},
		{"-d", "claims.test", "--discovery-srv-name", "blue"},
	} {
		if out := w.ok(append(args, "ls", "-o", "name")...); out != "k\n" {
			t.Errorf("%q: %q", args, out)
		}
	}
	w.fails(exitUnreachable, "is insecure", "ls", "-d", "claims.test", "--insecure-discovery=false")
	w.fails(exitUnreachable, "discover etcd in", "ls", "-d", "claims.test", "--discovery-srv-name", "green")
	t.Setenv("ETCDCTL_DISCOVERY_SRV", "claims.test")
	if out := w.ok("ls", "-o", "name"); out != "k\n" {
		t.Errorf("%q", out)
	}
}

// Without etcd the error names the endpoints and their flag, comes after --dial-timeout, and
// nothing stands above it.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	w := &world{T: t, flags: []string{"--endpoints", "127.0.0.1:1", "--dial-timeout", "200ms", "--command-timeout", "1m"}}
	for _, args := range [][]string{{"ls"}, {"queue", "ls"}, {"work", "ls"}, {"group", "ls"}, {"explain", "k"}} {
		begin := time.Now()
		w.fails(exitUnreachable, "no connection to etcd within 200ms; endpoints: 127.0.0.1:1 (--endpoints or ETCDCTL_ENDPOINTS)", args...)
		if r := w.ctl(args...); r.out != "" || time.Since(begin) > 10*time.Second {
			t.Errorf("%q printed %q, after %v", args, r.out, time.Since(begin))
		}
	}
	w.flags = []string{"--endpoints", "127.0.0.1:1", "--command-timeout", "200ms"}
	w.fails(exitUnreachable, "; endpoints: 127.0.0.1:1 (--endpoints or ETCDCTL_ENDPOINTS)", "ls")
}

// A password comes from a file or from the environment, so that ps does not show it.
func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	login := func(args ...string) (*clientv3.AuthConfig, error) {
		a := &app{in: strings.NewReader("")}
		root := a.root()
		if err := root.PersistentFlags().Parse(append([]string{"--user", "root"}, args...)); err != nil {
			t.Fatal(err)
		}
		if err := a.fromEnvironment(root); err != nil {
			t.Fatal(err)
		}
		return a.login()
	}
	for text, want := range map[string]string{"secret": "secret", " a b \r\nrest\n": " a b ", "\nx": "", "": ""} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		auth, err := login("--password-file", file)
		if want == "" && codeOf(err) != exitUsage || want != "" && (err != nil || auth.Username != "root" || auth.Password != want) {
			t.Errorf("%q: %+v, %v", text, auth, err)
		}
	}
	if _, err := login("--password-file", file+".none"); codeOf(err) != exitUsage {
		t.Error(err)
	}
	t.Setenv("ETCDCTL_PASSWORD", "from the environment")
	if auth, err := login(); err != nil || auth.Password != "from the environment" {
		t.Errorf("%+v, %v", auth, err)
	}
}
