package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"go.uber.org/goleak"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/internal/testwork"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProgram(t *testing.T) {
	server := claimtest.Start(t)
	for name, endpoints := range map[string]string{"OK": "", "OK with endpoints": strings.Join(server.Endpoints(), ",")} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := run(t.Context(), endpoints, &out); err != nil {
				t.Fatalf("%v:\n%s", err, &out)
			}
			for _, want := range []string{
				"shop 1 is frozen",
				"shop 2: 201 taken, 9 left",
				"shop 1, awake: 409 ",
				"CLAIM_LOST",
				"its late write with status 412",
				"at shop 1: 201 taken, 8 left",
				"at shop 2: 201 taken, 8 left",
			} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, &out)
				}
			}
		})
	}
	left, err := server.Etcd(t).Get(t.Context(), "/httpgate/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// Many customers, each of whom sends each order three times: to both shops at once,
// and later again.
func TestShop(t *testing.T) {
	etcd := claimtest.Start(t).Etcd(t)
	stock := &Stock{left: map[string]int{"tea": 100}}
	store := httptest.NewServer(stock.Handler())
	defer store.Close()
	var shops []*httptest.Server
	for range 2 {
		claims, err := etcdclaims.New(etcd, etcdclaims.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer claims.Close(t.Context())
		shop := httptest.NewServer(Shop(claims, testwork.Of(claims), store.URL, store.Client().Transport))
		defer shop.Close()
		shops = append(shops, shop)
	}
	order := func(shop *httptest.Server, customer, key string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, shop.URL+"/orders/tea", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("X-Customer", customer)
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
		resp, err := shop.Client().Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	var wg sync.WaitGroup
	for _, customer := range []string{"ann", "bob", "eve", "joe"} {
		for _, key := range []string{"1", "2", "3", "4", "5"} {
			for _, shop := range shops {
				wg.Go(func() {
					if code := order(shop, customer, key); code != 201 && code != 409 {
						t.Errorf("status %d", code)
					}
				})
			}
		}
	}
	wg.Wait()
	for _, customer := range []string{"ann", "bob", "eve", "joe"} {
		for _, key := range []string{"1", "2", "3", "4", "5"} {
			if code := order(shops[0], customer, key); code != 201 {
				t.Errorf("again: status %d", code)
			}
		}
	}
	if left := stock.left["tea"]; left != 80 {
		t.Errorf("%d left of 100 after 20 orders", left)
	}
}
