package grpcmw

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"google.golang.org/grpc/metadata"
)

// metadataKey is fencing.Header, as gRPC writes it.
const metadataKey = "fencing-token"

// Key determines the key that a call is about. CallKey and MessageKey return one.
type Key struct {
	// Exactly one is set.
	call    func(ctx context.Context, method string) string
	message func(ctx context.Context, m any) string
}

// CallKey returns a Key that is known when a call begins: for example from its
// metadata, its caller, or the full name of its method. An empty key refuses the
// call.
func CallKey(key func(ctx context.Context, method string) string) Key { return Key{call: key} }

// MessageKey returns a Key that is known from the request message. M is the type
// of the message, or an interface that the messages of several methods implement.
// An empty key refuses the call, and so does a message of another type: use
// Select to choose the methods.
//
// In a stream, all messages that are received must have the same key. The key is
// not known before the first message: Gate and Exclusive describe the
// consequences.
func MessageKey[M any](key func(ctx context.Context, m M) string) Key {
	if key == nil {
		return Key{}
	}
	return Key{message: func(ctx context.Context, m any) string {
		of, ok := m.(M)
		if !ok {
			return ""
		}
		return key(ctx, of)
	}}
}

// must panics if k is the zero Key.
func (k Key) must(who string) {
	if k.call == nil && k.message == nil {
		panic("grpcmw: " + who + " needs a key: use CallKey or MessageKey")
	}
}

// of returns the key of a unary call.
func (k Key) of(ctx context.Context, method string, req any) string {
	if k.call != nil {
		return k.call(ctx, method)
	}
	return k.message(ctx, req)
}

// tokenOf returns the token of a call.
func tokenOf(ctx context.Context) (fencing.Token, error) {
	switch values := metadata.ValueFromIncomingContext(ctx, metadataKey); len(values) {
	case 0:
		return fencing.Token{}, fmt.Errorf("%w: send it as metadata %s", fencing.ErrNoToken, metadataKey)
	case 1:
		return fencing.Parse(values[0])
	default:
		return fencing.Token{}, fmt.Errorf("%w: metadata %s has %d values; send one", fencing.ErrMalformed, metadataKey, len(values))
	}
}

// checkToken returns what is wrong with a token for a key, or with the key.
func checkToken(t fencing.Token, key string) error {
	switch {
	case t.Key == key: // Parse has validated it
		return nil
	case (fencing.Token{Key: key, Fence: 1}).Validate() != nil:
		return fmt.Errorf("%w: the key of the call is %.80q", middleware.ErrInvalidKey, key)
	}
	return fmt.Errorf("%w for key %.80q: the token sent is for %.80q", fencing.ErrNoToken, key, t.Key)
}
