package grpcmw

import (
	"context"
	"fmt"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/middleware"
	"google.golang.org/grpc/metadata"
)

// Key says which key a call is about. Make one with CallKey, MessageKey or
// TokenKey.
type Key struct {
	// One of the two.
	call    func(ctx context.Context, method string) string
	message func(ctx context.Context, m any) string
}

// CallKey is a key that is known when a call begins: from its metadata, say, from
// who calls, or from the full name of the method. "" refuses the call.
func CallKey(key func(ctx context.Context, method string) string) Key { return Key{call: key} }

// MessageKey is a key that is known from the request. M is its type, or an
// interface for those of several methods. "" refuses the call, and so does a
// message of another type: Select the methods that it is for.
//
// In a stream all messages that are received must have the key. It is not known
// before the first of them: Gate and Exclusive say what that means.
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

// TokenKey is the key that the call's own token names. A Gate with it admits a
// token of any key: then the handler must see to it that the token, which its
// context carries, is that of what it writes.
func TokenKey() Key {
	return CallKey(func(ctx context.Context, _ string) string {
		t, err := tokenOf(ctx)
		if err != nil {
			return ""
		}
		return t.Key
	})
}

// must panics unless it is a key.
func (k Key) must(who string) {
	if k.call == nil && k.message == nil {
		panic("grpcmw: " + who + " needs a key, as CallKey and MessageKey make them")
	}
}

// of returns the key of a unary call.
func (k Key) of(ctx context.Context, method string, req any) string {
	if k.call != nil {
		return k.call(ctx, method)
	}
	return k.message(ctx, req)
}

// tokenOf returns the token that came with a call.
func tokenOf(ctx context.Context) (fencing.Token, error) {
	switch values := metadata.ValueFromIncomingContext(ctx, fencing.MetadataKey); len(values) {
	case 0:
		return fencing.Token{}, fmt.Errorf("%w: send it as metadata %s", fencing.ErrNoToken, fencing.MetadataKey)
	case 1:
		return fencing.Parse(values[0])
	default:
		return fencing.Token{}, fmt.Errorf("%w: metadata %s has %d values, send one", fencing.ErrMalformed, fencing.MetadataKey, len(values))
	}
}

// checkToken says what is wrong with a token for a key, or with the key.
func checkToken(t fencing.Token, key string) error {
	switch {
	case t.Key == key: // which Parse found valid
		return nil
	case (fencing.Token{Key: key, Fence: 1}).Validate() != nil:
		return fmt.Errorf("%w: the call names %.80q", middleware.ErrInvalidKey, key)
	}
	return fmt.Errorf("%w for key %.80q: the one sent is for %.80q", fencing.ErrNoToken, key, t.Key)
}
