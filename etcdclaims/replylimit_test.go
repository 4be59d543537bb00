package etcdclaims_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// limited returns a client of claims that accepts replies of some bytes, and one of etcd that accepts all.
func limited(t *testing.T, most int) (*etcdclaims.Client, *clientv3.Client) {
	t.Helper()
	server := testetcd.Start(t, testetcd.NoSync())
	c, err := etcdclaims.New(testetcd.NewClient(t, clientv3.Config{Endpoints: server.Endpoints(), MaxCallRecvMsgSize: most}), etcdclaims.Config{})
	noErr(t, err)
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c, server.Client(t)
}

// The events of a history, with the values before them, are sent in parts.
func TestHistoryOfLargeValuesUnderAReplyLimit(t *testing.T) {
	t.Parallel()
	testetcd.SkipRace(t)
	c, etcd := limited(t, 3<<20)
	const terms = 600
	for i := range terms {
		value := fmt.Sprintf(`{"v":1,"claim":"%d","owner":"%s"}`, i, strings.Repeat("o", 4000))
		_, err := etcd.Put(t.Context(), c.Prefix()+"own/k", value)
		noErr(t, err)
	}
	h, err := admin.History(t.Context(), c, "k")
	if err != nil || len(h.Terms) != terms {
		t.Errorf("%d terms, %v, want %d", len(h.Terms), err, terms)
	}
}

// A client that has more notices than a reply may hold reads them in pages, and keeps its session.
func TestNoticesAreReadInPages(t *testing.T) {
	t.Parallel()
	c, etcd := limited(t, 16<<10)
	cl := tryClaim(t, c, "k")
	for i := range 60 {
		value := fmt.Sprintf(`{"v":1,"key":"other","claim":"%d","reason":"%s"}`, i, strings.Repeat("r", 1000))
		_, err := etcd.Put(t.Context(), fmt.Sprintf("%ssession/%s/evict/x%d", c.Prefix(), c.Instance(), i), value)
		noErr(t, err)
	}
	rev, err := etcdclaims.ReadSessions(c)
	noErr(t, err)
	if rev < cl.Revision()+60 {
		t.Errorf("read as of revision %d", rev)
	}
	noErr(t, cl.Check())
}
