package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
)

// Shop takes orders: POST /orders/{item} takes one of the item out of the stock. An
// order that is sent twice, under one Idempotency-Key, is taken once; orders for
// one item are taken one after the other, in however many shops; and each carries
// the fence of its turn to the stock. The wire is the shop's network.
func Shop(claims *etcdclaims.Client, works *work.Runner, stock string, wire http.RoundTripper) http.Handler {
	client := &http.Client{Transport: &middleware.Transport{Base: wire}}
	customer := func(r *http.Request) string { return "orders/" + r.Header.Get("X-Customer") } // as authenticated
	once := middleware.Once(works, customer, middleware.OnceConfig{})
	inTurn := middleware.Exclusive(claims, middleware.PathKey("stock/{item}"), middleware.Config{Wait: 5 * time.Second})

	mux := http.NewServeMux()
	mux.Handle("POST /orders/{item}", once(inTurn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left, err := take(r.Context(), client, stock+"/stock/"+r.PathValue("item"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "taken, %d left", left)
	}))))
	return mux
}

// take reads how many there are, and writes one less: what only one may do at a
// time.
func take(ctx context.Context, client *http.Client, url string) (left int, err error) {
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(fmt.Sprint(left-1)))
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if err := middleware.CheckResponse(resp); err != nil {
			return 0, err // fencing.ErrStale: another's turn has begun
		}
		if _, err := fmt.Fscan(resp.Body, &left); err != nil || resp.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("the stock answers with %s", resp.Status)
		}
	}
	return left, nil
}

// Stock keeps how many there are of each item. It takes no part in claims: it only
// refuses fences that are older than one it has seen.
type Stock struct {
	gate fencing.Memory // of a stock that is kept in memory, too: they end together

	mu   sync.Mutex
	left map[string]int
}

// Handler returns the stock's service: GET and PUT of /stock/{item}.
func (s *Stock) Handler() http.Handler {
	gate := middleware.Gate(&s.gate, middleware.PathKey("stock/{item}"), middleware.Config{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stock/{item}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = fmt.Fprint(w, s.left[r.PathValue("item")])
	})
	mux.Handle("PUT /stock/{item}", gate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var left int
		if _, err := fmt.Fscan(io.LimitReader(r.Body, 20), &left); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		// Once more, at one with the write: between the gate and here another
		// may have come by. In a database this is sqlguard.
		token, _ := fencing.FromContext(r.Context())
		if err := s.gate.Admit(r.Context(), token); err != nil {
			http.Error(w, err.Error(), http.StatusPreconditionFailed)
			return
		}
		s.left[r.PathValue("item")] = left
		_, _ = fmt.Fprint(w, left)
	})))
	return mux
}
