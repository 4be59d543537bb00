package fencing

import (
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/internal/structured"
)

// Header is the name under which a request carries a token in its text form, an Item of
// RFC 9651. It is the name of an HTTP request header and, in lower case, of gRPC metadata.
// Package metadata of gRPC converts it.
const Header = "Fencing-Token"

const (
	// maxInteger is the greatest Integer of RFC 9651, section 3.3.1: 15 digits.
	// Fences exceed it from epoch 8 on.
	maxInteger = 999_999_999_999_999
	// maxTextBytes leaves room for the longest key and for unknown parameters.
	// Each byte of the key takes up to three bytes in a Display String.
	maxTextBytes = 4096

	keyParameter = "key"
)

// String returns the token's text form: an Item of RFC 9651 with the key as its
// parameter, such as 1234;key="orders/42". A key that is not ASCII is written as
// a Display String: 1234;key=%"caf%c3%a9". A fence of more than 15 digits exceeds
// an Integer of the RFC, and is written as a String:
// "1125899906842624";key="orders/42".
//
// String also formats tokens that are not valid, for logs. Parse refuses them.
func (t Token) String() string {
	return string(t.appendText(nil))
}

// AppendText appends the token's text form to b; see String. It returns the error
// of Validate if the token is not valid.
func (t Token) AppendText(b []byte) ([]byte, error) {
	if err := t.Validate(); err != nil {
		return b, err
	}
	return t.appendText(b), nil
}

// MarshalText returns the token's text form; see String. It returns the error of
// Validate if the token is not valid, so that no such token is sent.
func (t Token) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// UnmarshalText sets t to the token that Parse returns for text.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

func (t Token) appendText(b []byte) []byte {
	if t.Fence > maxInteger || t.Fence < -maxInteger {
		b = append(b, '"')
		b = strconv.AppendInt(b, t.Fence, 10)
		b = append(b, '"')
	} else {
		b = strconv.AppendInt(b, t.Fence, 10)
	}
	b = append(b, ";"+keyParameter+"="...)
	if strings.ContainsFunc(t.Key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return structured.AppendDisplayString(b, t.Key)
	}
	return structured.AppendString(b, t.Key)
}

// Parse parses the text form of a token; see String. For any other text it
// returns an error that matches ErrMalformed.
//
// As RFC 9651 requires, Parse accepts spaces around the Item and leading zeros of
// an Integer, and ignores parameters other than the key. It refuses several
// header lines, which HTTP joins with commas.
func Parse(s string) (Token, error) {
	if len(s) > maxTextBytes {
		return Token{}, malformed("it has %d bytes, the limit is %d", len(s), maxTextBytes)
	}
	it, err := structured.ParseItem(s)
	if err != nil {
		return Token{}, malformed("%v", err)
	}
	var t Token
	switch v := it.Value.(type) {
	case int64:
		t.Fence = v
	case string:
		// Only a fence too long for an Integer is a String, in its one canonical form.
		fence, err := strconv.ParseInt(v, 10, 64)
		if err != nil || fence <= maxInteger || strconv.FormatInt(fence, 10) != v {
			return Token{}, malformed("%.80q is not a fence: a String must have 16 to 19 digits and fit in an int64", v)
		}
		t.Fence = fence
	default:
		return Token{}, malformed("%.80q does not begin with an Integer", s)
	}
	switch key := it.Parameters[keyParameter].(type) {
	case string:
		t.Key = key
	case structured.Display:
		t.Key = string(key)
	case nil:
		return Token{}, malformed("%.80q has no key parameter", s)
	default:
		return Token{}, malformed("%.80q has a key that is not a String", s)
	}
	if t.Fence == 0 { // valid in memory ("no fence"), never in a request
		return Token{}, malformed("fence 0 is below 1")
	}
	if err := t.Validate(); err != nil {
		return Token{}, err
	}
	return t, nil
}
