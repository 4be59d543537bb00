package jobs

import (
	"context"
	"time"

	"github.com/etcdclaims/claims/internal/passthrough"
	"github.com/etcdclaims/claims/middleware"
)

// message is the part of watermill's *message.Message that the package uses.
type message interface {
	Context() context.Context
	SetContext(ctx context.Context)
}

// Watermill returns a middleware for watermill's router, by which at most one
// message per key is handled at a time, across all processes. H is the router's
// HandlerFunc.
//
//	router.AddMiddleware(jobs.Watermill[message.HandlerFunc](claims,
//		func(msg *message.Message) string { return "order/" + msg.Metadata.Get("order") },
//		jobs.Config{Wait: -1},
//	))
//
// For a message that was not handled, the middleware returns an error, and the
// router sends a Nack. Many Pub/Subs then deliver the message again at once: set
// Wait, so that it does not circulate. Subscribers that deliver a partition in
// order deliver nothing else of it meanwhile.
//
// While the handler runs, the message's context carries the token and ends with
// the claim. Afterwards the message has its original context again. If the claim
// was lost by then, nothing is published, and the router sends a Nack, whatever
// the handler returned. So the router sends an Ack only if the claim was held to
// the end.
//
// The router publishes what the handler returned, and sends the Ack, after the
// key was released. If a message must be published before anything of the next
// owner, publish it within the handler, with the fence.
//
// Watermill panics if key is nil. If claims is a passthrough, handlers are returned
// unchanged.
func Watermill[H ~func(msg M) ([]M, error), M interface {
	Context() context.Context
	SetContext(ctx context.Context)
}](claims middleware.Claims, key func(msg M) string, cfg Config, opts ...middleware.AcquireOption) func(H) H {
	if key == nil {
		panic("jobs: Watermill needs a key function")
	}
	if passthrough.Of(claims) {
		return func(h H) H { return h }
	}
	run := exclusive[M, []M](claims, key, cfg, forEver, opts)
	return func(h H) H {
		return func(msg M) ([]M, error) {
			return run(msg.Context(), call[M, []M]{msg, within(msg, func() ([]M, error) { return h(msg) })})
		}
	}
}

// WatermillNoPublish is Watermill for handlers that publish nothing; H is
// NoPublishHandlerFunc. Wrap the handler itself when you add it to the router.
func WatermillNoPublish[H ~func(msg M) error, M interface {
	Context() context.Context
	SetContext(ctx context.Context)
}](claims middleware.Claims, key func(msg M) string, cfg Config, opts ...middleware.AcquireOption) func(H) H {
	if key == nil {
		panic("jobs: WatermillNoPublish needs a key function")
	}
	if passthrough.Of(claims) {
		return func(h H) H { return h }
	}
	run := exclusive[M, struct{}](claims, key, cfg, forEver, opts)
	return func(h H) H {
		return func(msg M) error {
			_, err := run(msg.Context(), call[M, struct{}]{msg, within(msg, func() (struct{}, error) { return struct{}{}, h(msg) })})
			return err
		}
	}
}

// forEver lets a message wait as long as its context allows. Few Pub/Subs deliver
// an unacknowledged message again, each in its own way.
func forEver(context.Context) time.Duration { return unbounded }

// within calls handle while the message has the context of the claim.
func within[M message, R any](msg M, handle func() (R, error)) func(ctx context.Context) (R, error) {
	return func(ctx context.Context) (R, error) {
		defer msg.SetContext(msg.Context())
		msg.SetContext(ctx)
		return handle()
	}
}
