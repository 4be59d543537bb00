package examples_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

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

// A run leaves no keys in an etcd that is not its own.
func TestUseLeavesNothing(t *testing.T) {
	server := testetcd.Shared(t)
	var used string
	err := demoetcd.Use(t.Context(), "demo", strings.Join(server.Endpoints(), ","), func(etcd *clientv3.Client, _ []string, prefix string) error {
		used = prefix
		_, err := etcd.Put(t.Context(), prefix+"key", "value")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	left, err := server.Client(t).Get(t.Context(), used, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count > 0 || used == "" {
		t.Errorf("%v are left over below %q, %v", left, used, err)
	}
}
