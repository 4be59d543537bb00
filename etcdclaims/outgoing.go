package etcdclaims

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
)

// outgoing is the gRPC metadata that a caller attached to its context. It is sent
// with the caller's requests, so only callers with equal metadata share a round
// trip: a token must not authorize what somebody else asked for.
type outgoing struct {
	md   metadata.MD
	text string // equal for equal metadata, empty for none
}

func outgoingOf(ctx context.Context) outgoing {
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok || len(md) == 0 {
		return outgoing{}
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(md)) {
		text.WriteString(strconv.Quote(key))
		for _, value := range md[key] {
			text.WriteByte('=')
			text.WriteString(strconv.Quote(value))
		}
		text.WriteByte(';')
	}
	return outgoing{md: md, text: text.String()}
}

// context returns ctx with the metadata attached.
func (o outgoing) context(ctx context.Context) context.Context {
	if o.text == "" {
		return ctx
	}
	return metadata.NewOutgoingContext(ctx, o.md)
}
