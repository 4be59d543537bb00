package telemetry_test

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

var encoderID = attribute.NewEncoderID()

// encoder writes attributes without the prefix that most have.
type encoder struct{}

func (encoder) Encode(it attribute.Iterator) string {
	var parts []string
	for it.Next() {
		kv := it.Attribute()
		parts = append(parts, strings.TrimPrefix(string(kv.Key), "etcdclaims.")+"="+kv.Value.String())
	}
	return strings.Join(parts, ",")
}

func (encoder) ID() attribute.EncoderID { return encoderID }
