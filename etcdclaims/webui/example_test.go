package webui_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/internal/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The page is mounted beside what a service serves. Everybody can look; operators can
// also do what Access permits them.
func Example() {
	ctx := context.Background()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Owner: "api-7", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	defer claims.Close(ctx)

	page, err := webui.New(claims, webui.Config{
		Title: "staging",
		User:  func(r *http.Request) string { return r.Header.Get("X-Forwarded-User") },
		Access: func(r *http.Request, op webui.Operation) error {
			switch {
			case op.Action == webui.ActionView:
				return nil
			case r.Header.Get("X-Forwarded-User") == "":
				return errors.New("log in to change anything")
			case op.Action == "release" || op.Action == "redrive":
				return nil
			}
			return errors.New("ask the team on call")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/ops/", page)
	server := httptest.NewServer(mux)
	defer server.Close()

	claim, err := claims.TryAcquire(ctx, "orders/42")
	if err != nil {
		log.Fatal(err)
	}
	defer claim.Release(ctx)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/ops/claims?prefix=orders/", nil))
	fmt.Println(answer.Code, strings.Contains(answer.Body.String(), "api-7"))
	// Output: 200 true
}
