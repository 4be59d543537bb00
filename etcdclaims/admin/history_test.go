package admin_test

import (
	"slices"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/testclaims"
)

// History sends one request for many terms, and only those that Newest asks for.
func TestHistoryCost(t *testing.T) {
	t.Parallel()
	testclaims.Virtually(t, func(t *testing.T, w *testclaims.World) {
		c := w.Peer()
		const terms = 400
		for i := range terms {
			testclaims.NoErr(t, testclaims.TryClaim(t, c, "k").Release(t.Context()))
			if i%4 == 0 {
				testclaims.NoErr(t, testclaims.TryClaim(t, c, "k!").Release(t.Context())) // between the key and what shares it
			}
		}
		read := func(opts ...admin.HistoryOption) (admin.KeyHistory, int64) {
			before := c.Stats().Requests
			h, err := admin.History(t.Context(), c, "k", opts...)
			testclaims.NoErr(t, err)
			return h, c.Stats().Requests - before
		}
		all, n := read()
		if len(all.Terms) != terms || all.Older != 0 || n > 1+terms*3/128+1 {
			t.Errorf("%d terms, %d older, with %d requests", len(all.Terms), all.Older, n)
		}
		for _, newest := range []int{1, 10, 300, terms, terms + 1} {
			h, n := read(admin.Newest(newest))
			want := all.Terms[max(0, terms-newest):]
			if !slices.Equal(h.Terms, want) || h.Older != terms-len(want) || n > 2+int64(len(want))*3/128 {
				t.Errorf("Newest(%d): %d terms, %d older, with %d requests", newest, len(h.Terms), h.Older, n)
			}
		}
		// What it keeps in memory is bounded by what it returns, not by what etcd has.
		if most, older := admin.MostTermsKept(c, 10, 10_005); most > 20 || older != 10_005-10 {
			t.Errorf("it kept %d terms, and dropped %d", most, older)
		}
		for _, wrong := range []int{-1, 0, 10_001} {
			before := c.Stats().Requests
			if _, err := admin.History(t.Context(), c, "k", admin.Newest(wrong)); err == nil || c.Stats().Requests > before {
				t.Errorf("Newest(%d): %v", wrong, err)
			}
		}
	})
}
