package txn

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
)

// Metadata is the outgoing gRPC metadata that a caller attached to its context. It
// can carry the caller's credentials and is sent with the caller's requests. So only
// callers with equal metadata share a round trip: a token must not authorize what
// another caller asked for.
type Metadata struct {
	md metadata.MD
	// Name is equal for equal metadata and differs for different metadata. It is
	// empty if there is none.
	Name string
}

// MetadataOf returns the outgoing metadata of a context.
func MetadataOf(ctx context.Context) Metadata {
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok || len(md) == 0 {
		return Metadata{}
	}
	var name strings.Builder
	for _, key := range slices.Sorted(maps.Keys(md)) {
		name.WriteString(strconv.Quote(key)) // quoted, so that no key or value can imitate two
		for _, value := range md[key] {
			name.WriteByte('=')
			name.WriteString(strconv.Quote(value))
		}
		name.WriteByte(';')
	}
	return Metadata{md: md, Name: name.String()}
}

// Context returns ctx with the metadata attached.
func (m Metadata) Context(ctx context.Context) context.Context {
	if m.Name == "" {
		return ctx
	}
	return metadata.NewOutgoingContext(ctx, m.md)
}
