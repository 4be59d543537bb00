package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/middleware"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// connect returns a client of claims, and what closes it. A program has one.
func connect(prefix string) (*etcdclaims.Client, func()) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: testetcd.SharedEndpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	claims, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: prefix, Owner: "shop-1", Logger: zap.Must(zap.NewProduction())})
	if err != nil {
		log.Fatal(err)
	}
	return claims, func() { _ = claims.Close(context.Background()); _ = etcd.Close() }
}

// ask sends a request to a handler, and prints the answer.
func ask(h http.Handler, method, target, body string, header ...string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var p *middleware.Problem
	if errors.As(middleware.CheckResponse(w.Result()), &p) {
		fmt.Println(p.Status, p.Title, p.Detail)
		return
	}
	fmt.Println(w.Code, w.Body)
}

// One request per order at a time, in however many processes.
func ExampleExclusive() {
	claims, stop := connect("/example/exclusive/")
	defer stop()

	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "order %s is paid", r.PathValue("id"))
	})
	exclusive := middleware.Exclusive(claims, middleware.PathKey("orders/{id}"), middleware.Config{})
	http.Handle("POST /orders/{id}/payment", exclusive(pay))

	ask(http.DefaultServeMux, "POST", "/orders/42/payment", "")
	claim, err := claims.TryAcquire(context.Background(), "orders/42") // another is at it
	if err != nil {
		log.Fatal(err)
	}
	ask(http.DefaultServeMux, "POST", "/orders/42/payment", "")
	_ = claim.Release(context.Background())
	// Output:
	// 200 order 42 is paid
	// 409 Another is working on the key. It is held by shop-1. Nothing was done.
}

// writeStock stands for a transaction that admits the token, by sqlguard, and writes.
func writeStock(ctx context.Context, t fencing.Token) error { return stockRows.Admit(ctx, t) }

var stockRows fencing.Memory

// A resource refuses what comes from an owner that is late.
func ExampleGate() {
	var newest fencing.Memory // an early reject
	write := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := fencing.FromContext(r.Context())
		err := writeStock(r.Context(), token) // checks the token once more, in its transaction
		if p, ok := middleware.ProblemOf(err); ok {
			p.ServeHTTP(w, r)
			return
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "written under fence %d", token.Fence)
	})
	gate := middleware.Gate(&newest, middleware.PathKey("stock/{id}"), middleware.Config{})
	mux := http.NewServeMux()
	mux.Handle("PUT /stock/{id}", gate(write))

	ask(mux, "PUT", "/stock/7", "", fencing.Header, `8;key="stock/7"`)
	ask(mux, "PUT", "/stock/7", "", fencing.Header, `5;key="stock/7"`)
	ask(mux, "PUT", "/stock/7", "")
	// Output:
	// 200 written under fence 8
	// 412 A newer owner of the key was here. token 5;key="stock/7" is stale: fence 8 is the newest for its key; stop, and claim the key again
	// 428 The request needs a fencing token. no token: send it as Fencing-Token
}

// What is sent under a claim carries its fence, and is not sent once that is over.
func ExampleTransport() {
	claims, stop := connect("/example/transport/")
	defer stop()
	stock := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := fencing.Parse(r.Header.Get(fencing.Header))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "got a fence of %s: %v", token.Key, token.Fence > 0)
	}))
	defer stock.Close()

	client := &http.Client{Transport: &middleware.Transport{}}
	defer client.CloseIdleConnections()
	var later context.Context
	err := claims.TryRun(context.Background(), "stock/7", func(ctx context.Context) error {
		later = ctx
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, stock.URL, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if err := middleware.CheckResponse(resp); err != nil {
			return err // errors.Is(err, fencing.ErrStale): another is at it
		}
		body, err := io.ReadAll(resp.Body)
		fmt.Println(string(body))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	r, _ := http.NewRequestWithContext(later, http.MethodPut, stock.URL, nil)
	_, err = client.Do(r) //nolint:bodyclose // there is none
	fmt.Println("afterwards it is sent:", err == nil)
	// Output:
	// got a fence of stock/7: true
	// afterwards it is sent: false
}

// A repeated request is answered with what the first one got.
func ExampleOnce() {
	claims, stop := connect("/example/once/")
	defer stop()

	orders := 0
	order := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "order %d", orders)
	})
	customer := func(r *http.Request) string { return "orders/" + r.Header.Get("X-Customer") } // as authenticated
	once := middleware.Once(testwork.Of(claims), customer, middleware.OnceConfig{})

	for _, body := range []string{"tea", "tea", "coffee"} {
		ask(once(order), "POST", "/orders", body, "Idempotency-Key", `"8e03978e"`, "X-Customer", "ann")
	}
	ask(once(order), "POST", "/orders", "tea", "X-Customer", "ann")
	// Output:
	// 201 order 1
	// 201 order 1
	// 422 The Idempotency-Key was used for another request. It was sent before with another method, path, query or body.
	// 400 The request needs an Idempotency-Key. Send one, in quotes: Idempotency-Key: "…".
}

// A function that runs for one account at a time.
func ExampleFunc() {
	claims, stop := connect("/example/func/")
	defer stop()

	settle := middleware.Func(claims, func(account string) string { return "accounts/" + account },
		func(ctx context.Context, account string) (int, error) {
			token, _ := fencing.FromContext(ctx)
			fmt.Println("settling under", token.Key)
			return 7, nil
		}, middleware.FuncConfig{})
	booked, err := settle(context.Background(), "ann")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("booked:", booked)

	claim, err := claims.TryAcquire(context.Background(), "accounts/bob")
	if err != nil {
		log.Fatal(err)
	}
	_, err = settle(context.Background(), "bob")
	fmt.Println("held by another:", errors.Is(err, fencing.ErrHeld))
	_ = claim.Release(context.Background())
	// Output:
	// settling under accounts/ann
	// booked: 7
	// held by another: true
}

// A function that runs once for each account, and is remembered.
func ExampleFuncOnce() {
	claims, stop := connect("/example/funconce/")
	defer stop()

	welcome := middleware.FuncOnce(testwork.Of(claims), func(account string) string { return "welcome/" + account },
		func(_ context.Context, account string) (string, error) {
			fmt.Println("a letter to", account)
			return "letter 1", nil
		}, middleware.FuncConfig{Skip: true})
	for range 2 {
		sent, err := welcome(context.Background(), "ann")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("sent:", sent)
	}
	// Output:
	// a letter to ann
	// sent: letter 1
	// sent: letter 1
}

// One leader, for as long as it lasts; then another.
func ExampleSingleton() {
	claims, stop := connect("/example/singleton/")
	defer stop()
	ctx, resign := context.WithCancel(context.Background())

	err := middleware.Singleton(ctx, claims, "scheduler", func(ctx context.Context) error {
		fmt.Println("leading")
		resign() // as SIGTERM would
		<-ctx.Done()
		fmt.Println("draining")
		return nil
	}, middleware.SingletonConfig{})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// leading
	// draining
}
