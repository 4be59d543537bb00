package jobs

import (
	"context"

	"github.com/etcdclaims/claims/middleware"
)

// Message is what the package needs of watermill's *message.Message.
type Message interface {
	Context() context.Context
	SetContext(ctx context.Context)
}

// Watermill returns a middleware for watermill's router, H being its HandlerFunc:
// at most one message per key is handled at a time, in all processes.
//
//	router.AddMiddleware(jobs.Watermill[message.HandlerFunc](claims,
//		func(msg *message.Message) string { return "order/" + msg.Metadata.Get("order") },
//		jobs.Config{Wait: -1},
//	))
//
// A message that was not handled is an error, for which the router sends a Nack.
// Many Pub/Subs deliver it again at once then: let it Wait, so that it is not asked
// for in a circle. Subscribers that deliver a partition in order deliver nothing
// else of it meanwhile.
//
// The message's context carries the token and ends with the claim while the handler
// has it, and is what it was when that has returned or panicked. If the claim was
// lost by then, nothing is published and the error makes the router send a Nack,
// whatever the handler returned. So the router sends an Ack only for what was owned
// to its end. It publishes what the handler returned, and sends the Ack, when the
// key is given up already: publish within the handler, with the fence, what must
// come before anything of the next owner's.
//
// Watermill panics if key is nil. With claims that are nil or a passthrough
// handlers are returned as they are.
func Watermill[H ~func(msg M) ([]M, error), M Message, O any](claims middleware.Claims[O], key func(msg M) string, cfg Config, opts ...O) func(H) H {
	if key == nil {
		panic("jobs: Watermill needs a key function")
	}
	if passes(claims) {
		return func(h H) H { return h }
	}
	run := exclusive[M, []M](claims, key, cfg, opts)
	return func(h H) H {
		return func(msg M) ([]M, error) {
			return run(msg.Context(), call[M, []M]{msg, within(msg, func() ([]M, error) { return h(msg) })})
		}
	}
}

// WatermillNoPublish is Watermill for handlers that publish nothing, H being a
// NoPublishHandlerFunc: wrap the handler itself with it, where it is added to the
// router.
func WatermillNoPublish[H ~func(msg M) error, M Message, O any](claims middleware.Claims[O], key func(msg M) string, cfg Config, opts ...O) func(H) H {
	if key == nil {
		panic("jobs: WatermillNoPublish needs a key function")
	}
	if passes(claims) {
		return func(h H) H { return h }
	}
	run := exclusive[M, struct{}](claims, key, cfg, opts)
	return func(h H) H {
		return func(msg M) error {
			_, err := run(msg.Context(), call[M, struct{}]{msg, within(msg, func() (struct{}, error) { return struct{}{}, h(msg) })})
			return err
		}
	}
}

// within lends a message the context of the claim.
func within[M Message, R any](msg M, handle func() (R, error)) func(ctx context.Context) (R, error) {
	return func(ctx context.Context) (R, error) {
		defer msg.SetContext(msg.Context())
		msg.SetContext(ctx)
		return handle()
	}
}
