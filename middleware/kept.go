package middleware

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"unicode/utf8"
)

// kept is a response as it is stored: a line of JSON, followed by the body.
type kept struct {
	Version int    `json:"v"`
	Print   string `json:"print"`
	Status  int    `json:"status"`
	Whole   bool   `json:"whole"`
	own
	Length string `json:"length,omitempty"` // the handler's own Content-Length
	body   []byte
}

// own is the handler's changes to the header of a response. Handlers outside of
// Once set their own fields, such as cookies, anew for each request.
type own struct {
	Header  http.Header `json:"header,omitempty"`  // set
	Added   http.Header `json:"added,omitempty"`   // appended to existing values
	Deleted []string    `json:"deleted,omitempty"` // removed from what existed
}

// Version 1 has neither Added nor Deleted. A program that knows only version 1 would ignore
// them, so it must refuse version 2.
const (
	firstKept   = 1
	keptVersion = 2
)

// ownHeader returns the changes between two states of a header. It leaves out
// fields that concern one message or one connection only.
func ownHeader(before, after http.Header) (o own) {
	o.Header, o.Added = make(http.Header), make(http.Header)
	for name, values := range after {
		was := before[name]
		switch {
		case ofOneMessage(name), slices.Equal(values, was):
		case len(was) > 0 && len(values) > len(was) && slices.Equal(values[:len(was)], was):
			o.Added[name] = values[len(was):]
		default:
			o.Header[name] = values
		}
	}
	for name := range before {
		if _, there := after[name]; !there && !ofOneMessage(name) {
			o.Deleted = append(o.Deleted, name)
		}
	}
	slices.Sort(o.Deleted)
	return o
}

func ofOneMessage(name string) bool {
	switch name {
	case "Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// apply makes the same changes to another header.
func (o own) apply(h http.Header) {
	for _, name := range o.Deleted {
		delete(h, name)
	}
	maps.Copy(h, o.Header)
	for name, values := range o.Added {
		h[name] = append(slices.Clone(h[name]), values...)
	}
}

// valid reports whether JSON preserves the header.
func (o own) valid() bool {
	for _, h := range []http.Header{o.Header, o.Added} {
		for _, values := range h {
			if slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
				return false
			}
		}
	}
	return true
}

func (k kept) encode() ([]byte, error) {
	if !k.Whole {
		k.own, k.Length, k.body = own{}, "", nil
	}
	if k.Version == keptVersion && len(k.Added) == 0 && len(k.Deleted) == 0 {
		k.Version = firstKept
	}
	b, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	return append(append(b, '\n'), k.body...), nil
}

func decodeKept(b []byte) (kept, error) {
	line, body, _ := bytes.Cut(b, []byte("\n"))
	k := kept{body: body}
	if err := json.Unmarshal(line, &k); err != nil {
		return k, fmt.Errorf("middleware: cannot decode the stored response: %w", err)
	}
	if k.Version > keptVersion {
		return k, fmt.Errorf("middleware: cannot decode the stored response: "+
			"version %d is newer than version %d of this package", k.Version, keptVersion)
	}
	return k, nil
}

// send answers with the response. If the handler did not set Content-Length,
// net/http computes it, because an outer handler may compress the body.
func (k kept) send(w http.ResponseWriter) {
	h := w.Header()
	k.apply(h)
	h.Set(replayedHeader, "true")
	if k.Length != "" {
		h.Set("Content-Length", k.Length)
	}
	w.WriteHeader(k.Status)
	if len(k.body) > 0 {
		_, _ = w.Write(k.body) // the client is gone if this fails
	}
}
