package etcdclaims_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A client that accepts replies of 4 MiB lists claims whose notes have more bytes in total.
func TestListOfLargeNotesUnderAReplyLimit(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	server := testetcd.Start(t, testetcd.NoSync())
	open := func(etcd *clientv3.Client) *etcdclaims.Client {
		c, err := etcdclaims.New(etcd, etcdclaims.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(t.Context()) })
		return c
	}
	holder := open(server.Client(t))
	var keys []string
	for i := range 300 {
		keys = append(keys, fmt.Sprint("k/", i))
	}
	held, errs := holder.TryAcquireEach(t.Context(), keys)
	for i, claim := range held {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if err := claim.Note(t.Context(), []byte(strings.Repeat("n", 20_000))); err != nil {
			t.Fatal(err)
		}
	}
	reader := open(testetcd.NewClient(t, clientv3.Config{Endpoints: server.Endpoints(), MaxCallRecvMsgSize: 4 << 20}))
	begun, n := time.Now(), 0
	for _, err := range reader.List(t.Context(), "") {
		if err != nil {
			t.Errorf("after %s and %d keys: %v", time.Since(begun).Round(100*time.Millisecond), n, err)
			break
		}
		n++
	}
	if n != len(keys) {
		t.Errorf("%d keys, want %d", n, len(keys))
	}
}
