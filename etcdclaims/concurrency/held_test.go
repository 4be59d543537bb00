package concurrency

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
)

func claims(t *testing.T, n int) (all []*etcdclaims.Claim) {
	t.Helper()
	c, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		cl, err := c.TryAcquire(t.Context(), fmt.Sprint("k", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cl)
	}
	return all
}

// Each of several unlocks at the same time releases another claim.
func TestUnlocksTogether(t *testing.T) {
	t.Parallel()
	s := &Session{ctx: context.Background()}
	for range 2000 {
		var h Held
		all := claims(t, 4)
		for _, cl := range all {
			h.add(cl)
		}
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range all {
			wg.Go(func() {
				<-begin
				if err := h.unlock(context.Background(), s, "k"); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		for _, cl := range all {
			if cl.Err() == nil {
				t.Fatalf("%q is still held", cl.Key())
			}
		}
	}
}

// What has ended is not remembered, and what is held once is remembered once.
func TestLeadershipsAreForgotten(t *testing.T) {
	t.Parallel()
	s := &Session{leads: map[string]*leadership{}}
	for _, cl := range claims(t, 50) {
		s.lead(&leadership{claim: cl, pfx: cl.Key()})
		if err := cl.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.leads) > 1 {
		t.Errorf("%d leaderships", len(s.leads))
	}
	var h Held
	cl := claims(t, 1)[0]
	for range 50 {
		h.add(cl)
	}
	if len(h.claims) != 1 {
		t.Errorf("%d claims", len(h.claims))
	}
}
