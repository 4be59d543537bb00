package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

const (
	// maxTemplates is how many templates have names of their own.
	maxTemplates = 200
	// maxTemplateBytes is about how long a template is at most.
	maxTemplateBytes = 96
	// otherTemplate is for all templates beyond the first maxTemplates.
	otherTemplate = "other"
	// leastHex is the length from which hexadecimal digits are taken for an id.
	leastHex = 8
	// leastID is the length from which letters and digits are taken for an id.
	leastID = 16
)

// KeyTemplate returns the key with what identifies a single thing replaced by an
// asterisk: digits, UUIDs, words of 8 or more hexadecimal digits, and words of 16
// or more letters and digits. "orders/4711/line-2" becomes "orders/*/line-*". A
// long template is cut off.
func KeyTemplate(key string) string {
	var buf [maxTemplateBytes + 8]byte
	return string(appendTemplate(buf[:0], key))
}

func appendTemplate(to []byte, key string) []byte {
	for i := 0; i < len(key); {
		if len(to) >= maxTemplateBytes {
			return star(to)
		}
		if n := uuidAt(key[i:]); n > 0 {
			to, i = star(to), i+n
			continue
		}
		if n, id := wordAt(key[i:]); n > 0 {
			if id {
				to = star(to)
			} else {
				to = appendWord(to, key[i:i+n])
			}
			i += n
			continue
		}
		r, n := utf8.DecodeRuneInString(key[i:])
		if r == utf8.RuneError || unicode.IsDigit(r) {
			to = star(to)
		} else {
			to = append(to, key[i:i+n]...)
		}
		i += n
	}
	return to
}

// star appends an asterisk, unless one is last already.
func star(to []byte) []byte {
	if len(to) > 0 && to[len(to)-1] == '*' {
		return to
	}
	return append(to, '*')
}

// appendWord appends a word with its digits replaced, as far as there is room.
func appendWord(to []byte, word string) []byte {
	for i := range len(word) {
		switch {
		case len(to) >= maxTemplateBytes:
			return to
		case isDigit(word[i]):
			to = star(to)
		default:
			to = append(to, word[i])
		}
	}
	return to
}

// wordAt returns the length of the word of ASCII letters and digits at the
// beginning of s, and whether it is an id.
func wordAt(s string) (n int, id bool) {
	hex, digits := true, false
	for ; n < len(s) && (isDigit(s[n]) || isLetter(s[n])); n++ {
		hex = hex && isHex(s[n])
		digits = digits || isDigit(s[n])
	}
	return n, hex && n >= leastHex || digits && n >= leastID
}

// uuidAt returns the length of the UUID at the beginning of s, or 0.
func uuidAt(s string) int {
	const n = 36
	if len(s) < n {
		return 0
	}
	for i := range n {
		switch i {
		case 8, 13, 18, 23:
			if s[i] != '-' {
				return 0
			}
		default:
			if !isHex(s[i]) {
				return 0
			}
		}
	}
	return n
}

func isDigit(b byte) bool  { return b >= '0' && b <= '9' }
func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
func isHex(b byte) bool    { return isDigit(b) || b|0x20 >= 'a' && b|0x20 <= 'f' }

// templates makes templates of keys, and bounds their number: those that come first
// have names of their own.
type templates struct {
	custom func(string) string // nil: KeyTemplate

	known atomic.Pointer[map[string]string]
	mu    sync.Mutex // of changes
}

func newTemplates(custom func(string) string) *templates {
	t := &templates{custom: custom}
	t.known.Store(&map[string]string{})
	return t
}

// of returns the template for a key.
func (t *templates) of(key string) string {
	if t.custom != nil {
		made := t.custom(key)
		if known, ok := (*t.known.Load())[made]; ok {
			return known
		}
		return t.learn(made)
	}
	var buf [maxTemplateBytes + 8]byte
	made := appendTemplate(buf[:0], key)
	if known, ok := (*t.known.Load())[string(made)]; ok {
		return known
	}
	return t.learn(string(made))
}

// learn adds a template, if there is room.
func (t *templates) learn(made string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := *t.known.Load()
	if known, ok := now[made]; ok {
		return known
	}
	if len(now) >= maxTemplates {
		return otherTemplate
	}
	next := maps.Clone(now)
	next[made] = made
	t.known.Store(&next)
	return made
}
