package demoetcd_test

import (
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/internal/testetcd"
)

func TestMain(m *testing.M) { testetcd.Main(m) }

func TestOpenStartsMember(t *testing.T) {
	eps, stop, err := demoetcd.Open("")
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: eps, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), "key", "value"); err != nil {
		t.Error(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %v with all clients closed", took)
	}
}

func TestOpenGiven(t *testing.T) {
	eps, stop, err := demoetcd.Open("http://one:2379, http://two:2379")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if want := []string{"http://one:2379", "http://two:2379"}; !slices.Equal(eps, want) {
		t.Errorf("got %q, want %q", eps, want)
	}
	if _, _, err := demoetcd.Open("http://one:2379,"); err == nil {
		t.Error("no error for an empty endpoint")
	}
}

func TestSecured(t *testing.T) {
	s, err := demoetcd.StartSecured(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Stop() }()
	certificate, err := s.Certificate("app")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnableAuth(t.Context(), "app", demoetcd.Grant{Prefix: "/app/", Write: true}, demoetcd.Grant{Prefix: "/read/"}); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	etcd, err := demoetcd.DialTLS(s.Endpoint, certificate)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	for key, permitted := range map[string]bool{"/app/1": true, "/read/1": false, "/other/1": false} {
		if _, err := etcd.Put(t.Context(), key, ""); (err == nil) != permitted {
			t.Errorf("put %s: %v", key, err)
		}
	}
	if _, err := etcd.Get(t.Context(), "/read/1"); err != nil {
		t.Error(err)
	}
}
