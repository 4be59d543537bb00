package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"

	"github.com/etcdclaims/claims/etcdclaims"
)

// demoProvider returns a provider that is down now and then, and cannot reach joe.
func demoProvider(logger *slog.Logger) func(context.Context, Invoice) error {
	return func(_ context.Context, in Invoice) error {
		switch {
		case in.Customer == "joe":
			return etcdclaims.Permanent(errors.New("joe has no address")) // no attempt can succeed
		case rand.N(4) == 0:
			return errors.New("the provider is down")
		}
		logger.Info("sent", "invoice", in.ID, "cents", in.Cents)
		return nil
	}
}
