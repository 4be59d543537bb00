package fencing

import (
	"strconv"
	"strings"
)

// Where a token stands in a request, in its text form.
const (
	// Header is the HTTP request header, an Item of RFC 9651.
	Header = "Fencing-Token"
	// MetadataKey is the key of gRPC metadata; the value is the same.
	MetadataKey = "fencing-token"
)

const (
	// maxInteger is the greatest Integer of RFC 9651, section 3.3.1: 15 digits.
	// Fences reach it once the epoch is 7.
	maxInteger = 999_999_999_999_999
	// maxTextBytes leaves room for the longest key, each byte of which takes
	// three in a Display String, and for parameters of others.
	maxTextBytes = 4096

	keyParameter = "key"
)

// String returns the token's text form, an Item of RFC 9651 with the key as its
// parameter: 1234;key="orders/42". A key that is not ASCII is a Display String:
// 1234;key=%"caf%c3%a9". A fence of more than 15 digits, which no Integer of the
// RFC has, is a String of its digits: "1125899906842624";key="orders/42".
//
// A token that is not valid has a text too, for people; Parse refuses it.
func (t Token) String() string {
	b, _ := t.appendText(nil)
	return string(b)
}

// AppendText appends what MarshalText returns to b.
func (t Token) AppendText(b []byte) ([]byte, error) {
	if err := t.Validate(); err != nil {
		return b, err
	}
	return t.appendText(b)
}

// MarshalText returns the token's text form; see String. It refuses, as Validate
// does, a token that no gate would admit, so that none is sent.
func (t Token) MarshalText() ([]byte, error) { return t.AppendText(nil) }

// UnmarshalText is Parse.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

func (t Token) appendText(b []byte) ([]byte, error) {
	if long := t.Fence > maxInteger || t.Fence < -maxInteger; long {
		b = append(b, '"')
		b = strconv.AppendInt(b, t.Fence, 10)
		b = append(b, '"')
	} else {
		b = strconv.AppendInt(b, t.Fence, 10)
	}
	b = append(b, ";"+keyParameter+"="...)
	if strings.ContainsFunc(t.Key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return appendDisplayString(b, t.Key), nil
	}
	return appendString(b, t.Key), nil
}

// Parse reads the text form of a token: see String. Every other text is refused
// with an error that matches ErrMalformed. As RFC 9651 has it, spaces around the
// Item, leading zeros of an Integer, and parameters other than the key pass and
// mean nothing. Several header lines, which HTTP joins with commas, are no Item.
func Parse(s string) (Token, error) {
	if len(s) > maxTextBytes {
		return Token{}, malformed("it has %d bytes, the limit is %d", len(s), maxTextBytes)
	}
	it, err := parseItem(s)
	if err != nil {
		return Token{}, err
	}
	var t Token
	switch v := it.value.(type) {
	case int64:
		t.Fence = v
	case string:
		// Only what is too long for an Integer, in the one way to write it.
		fence, err := strconv.ParseInt(v, 10, 64)
		if err != nil || fence <= maxInteger || strconv.FormatInt(fence, 10) != v {
			return Token{}, malformed("%.80q is no fence: a String must be of 16 to 19 digits, within an int64", v)
		}
		t.Fence = fence
	default:
		return Token{}, malformed("%.80q does not begin with an Integer", s)
	}
	switch key := it.parameters[keyParameter].(type) {
	case string:
		t.Key = key
	case display:
		t.Key = string(key)
	case nil:
		return Token{}, malformed("%.80q has no parameter key, a String", s)
	default:
		return Token{}, malformed("%.80q has a key that is no String", s)
	}
	if t.Fence == 0 { // which nobody may send
		return Token{}, malformed("fence 0 is below 1")
	}
	if err := t.Validate(); err != nil {
		return Token{}, err
	}
	return t, nil
}
