package sched

import (
	"encoding/json"
	"strings"
)

// escaped are the characters that package json escapes inside the JSON that it is given.
var escaped = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\u2028`, "\u2028", `\u2029`, "\u2029")

// unescaped returns a payload without these escapes, as Define took it: with them it can
// exceed the limit.
func unescaped(payload json.RawMessage) json.RawMessage {
	if payload == nil {
		return nil
	}
	return json.RawMessage(escaped.Replace(string(payload)))
}
