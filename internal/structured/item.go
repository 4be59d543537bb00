// Package structured reads and writes the Items of RFC 9651, Structured Field Values
// for HTTP, of which tokens and idempotency keys are made. It imports the standard
// library only, as those do who gate with it.
package structured

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Item is an Item of RFC 9651. Its value and those of its parameters are of the
// types int64 (Integer), string (String), Display, or Other.
type Item struct {
	Value      any
	Parameters map[string]any
}

type (
	// Display is a Display String, decoded.
	Display string
	// Other is a Decimal, Token, Byte Sequence, Boolean or Date: none of ours has
	// one, but parameters of others may.
	Other struct{}
)

// ParseItem follows RFC 9651, section 4.2, which says of each text whether it is
// an Item: two parsers must not take one text for two Items.
func ParseItem(s string) (Item, error) {
	p := &parser{all: s, rest: strings.TrimLeft(s, " ")}
	it := Item{Value: p.bare(), Parameters: map[string]any{}}
	for p.err == nil && p.take(';') {
		p.rest = strings.TrimLeft(p.rest, " ")
		name := p.name()
		var value any = Other{} // a parameter without a value is a Boolean
		if p.take('=') {
			value = p.bare()
		}
		it.Parameters[name] = value // of several the last, as the RFC has it
	}
	if strings.TrimLeft(p.rest, " ") != "" {
		p.fail("what follows is no parameter")
	}
	return it, p.err
}

// parser takes a text apart from its beginning; err says that it cannot.
type parser struct {
	all, rest string
	err       error
}

func (p *parser) fail(why string) {
	if p.err == nil {
		p.err = fmt.Errorf("%.80q, at byte %d: %s", p.all, len(p.all)-len(p.rest), why)
	}
	p.rest = ""
}

// take takes one byte if it is c.
func (p *parser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// while takes all bytes from the beginning that are of the kind.
func (p *parser) while(of func(c byte) bool) string {
	n := 0
	for n < len(p.rest) && of(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *parser) name() string {
	if p.rest == "" || !lower(p.rest[0]) && p.rest[0] != '*' {
		p.fail("the name of a parameter begins with a lower-case letter")
		return ""
	}
	return p.while(func(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 })
}

func (p *parser) bare() any {
	if p.rest == "" {
		p.fail("a value is missing")
		return nil
	}
	switch c := p.rest[0]; {
	case c == '-' || digit(c):
		return p.number()
	case c == '"':
		return p.quoted()
	case c == '%':
		return p.display()
	case c == '*' || letter(c):
		p.while(func(c byte) bool { return letter(c) || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0 })
	case c == ':':
		p.bytes()
	case p.take('?'):
		if !p.take('0') && !p.take('1') {
			p.fail("a Boolean is ?0 or ?1")
		}
	case p.take('@'):
		if _, integer := p.number().(int64); !integer {
			p.fail("a Date is an Integer")
		}
	default:
		p.fail("this begins no value")
	}
	return Other{}
}

func (p *parser) number() any {
	negative := p.take('-')
	whole := p.while(digit)
	fraction, decimal := "", p.take('.')
	if decimal {
		fraction = p.while(digit)
	}
	switch {
	case whole == "", decimal && fraction == "":
		p.fail("a digit is missing")
	case decimal && (len(whole) > 12 || len(fraction) > 3):
		p.fail("a Decimal has at most 12 digits before its point and 3 behind")
	case len(whole) > 15:
		p.fail("an Integer has at most 15 digits; a greater fence is a String")
	case decimal:
		return Other{}
	}
	n, _ := strconv.ParseInt(whole, 10, 64) // at most 15 digits
	if negative {
		n = -n
	}
	return n
}

func (p *parser) quoted() string {
	p.take('"')
	var b strings.Builder
	for {
		b.WriteString(p.while(func(c byte) bool { return ' ' <= c && c <= '~' && c != '"' && c != '\\' }))
		switch {
		case p.take('"'):
			return b.String()
		case p.take('\\'):
			if p.rest == "" || p.rest[0] != '"' && p.rest[0] != '\\' {
				p.fail(`\ stands before " and \ only`)
				return ""
			}
			b.WriteByte(p.rest[0])
			p.rest = p.rest[1:]
		default:
			p.fail(`a String is printable ASCII up to a "`)
			return ""
		}
	}
}

func (p *parser) display() Display {
	p.take('%')
	if !p.take('"') {
		p.fail(`a Display String begins with %"`)
		return ""
	}
	var b strings.Builder
	for {
		b.WriteString(p.while(func(c byte) bool { return ' ' <= c && c <= '~' && c != '"' && c != '%' }))
		switch {
		case p.take('"'):
			if !utf8.ValidString(b.String()) {
				p.fail("a Display String is UTF-8")
			}
			return Display(b.String())
		case p.take('%'):
			if len(p.rest) < 2 || !lowerHex(p.rest[0]) || !lowerHex(p.rest[1]) {
				p.fail("% stands before two lower-case hexadecimal digits")
				return ""
			}
			c, _ := strconv.ParseUint(p.rest[:2], 16, 8)
			b.WriteByte(byte(c))
			p.rest = p.rest[2:]
		default:
			p.fail(`a Display String is printable ASCII up to a "`)
			return ""
		}
	}
}

// bytes takes a Byte Sequence. Padding may be left out, and superfluous bits may
// be set, as the RFC wants of parsers.
func (p *parser) bytes() {
	p.take(':')
	text := p.while(func(c byte) bool { return c != ':' })
	_, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if !p.take(':') || err != nil || strings.ContainsAny(text, "\r\n") {
		p.fail("a Byte Sequence is base64 between colons")
	}
}

// AppendString appends a String of printable ASCII to b.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// AppendDisplayString appends a Display String to b.
func AppendDisplayString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, `%"`...)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '%' {
			b = append(b, '%', hex[c>>4], hex[c&0xf])
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func digit(c byte) bool    { return '0' <= c && c <= '9' }
func lower(c byte) bool    { return 'a' <= c && c <= 'z' }
func letter(c byte) bool   { return lower(c) || 'A' <= c && c <= 'Z' }
func lowerHex(c byte) bool { return digit(c) || 'a' <= c && c <= 'f' }
