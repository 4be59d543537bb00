package main

import (
	"encoding/json"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/etcdclaims/claims/examples/billing/billingdb"
)

// routes is the API of the service. It knows nothing of claims: an order is one
// statement that can be repeated.
func routes(q *billingdb.Queries) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer)
	r.Route("/accounts/{account}", func(r chi.Router) {
		r.Get("/", func(w http.ResponseWriter, r *http.Request) {
			balance, err := q.GetBalance(r.Context(), chi.URLParam(r, "account"))
			respond(w, http.StatusOK, map[string]int64{"balance": balance}, err)
		})
		r.Put("/invoices/{invoice}", func(w http.ResponseWriter, r *http.Request) {
			var invoice billingdb.Invoice
			if err := json.NewDecoder(r.Body).Decode(&invoice); err != nil || invoice.Amount <= 0 {
				http.Error(w, "want an invoice with an amount", http.StatusBadRequest)
				return
			}
			invoice.ID, invoice.AccountID = chi.URLParam(r, "invoice"), chi.URLParam(r, "account")
			respond(w, http.StatusCreated, invoice, q.CreateInvoice(r.Context(), invoice))
		})
	})
	return r
}

func respond(w http.ResponseWriter, status int, body any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Printf("answer: %v", err)
	}
}
