package webui

import (
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/etcdclaims/claims/internal/explain"
)

// visible returns a text of others in a form that cannot deceive the reader:
// control characters, such as those that change the direction of text, and characters
// that look like nothing are written as escapes.
func visible(s string) string {
	if !strings.ContainsFunc(s, invisible) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case invisible(r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case invisible(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// invisible reports whether a character is written as an escape. Lines and tabs of
// texts are kept.
func invisible(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }

// cut shortens a text to about n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// timestamp is a time as people read it, in UTC.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return "—"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

// ago is an element with how long ago a time was, which the script keeps up to date.
func ago(t, now time.Time) template.HTML {
	if t.IsZero() {
		return "—"
	}
	text := span(now.Sub(t)) + " ago"
	switch {
	case now.Sub(t).Abs() < time.Second:
		text = "now"
	case t.After(now):
		text = "in " + span(t.Sub(now))
	}
	return element(t, "", text)
}

// lasts is an element with how long something has lasted, which the script keeps up to
// date.
func lasts(since, now time.Time) template.HTML {
	if since.IsZero() {
		return "—"
	}
	return element(since, " data-lasts", span(now.Sub(since)))
}

// element is a time. All its parts are made of digits and letters.
func element(t time.Time, attribute, text string) template.HTML {
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s"%s>%s</time>`,
		t.UTC().Format(time.RFC3339Nano), timestamp(t), attribute, text))
}

// span is a duration as people read it. The script has the same function.
func span(d time.Duration) string {
	d = d.Abs()
	switch s := int(d / time.Second); {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 2*3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 2*86400:
		return fmt.Sprintf("%d h", s/3600)
	default:
		return fmt.Sprintf("%d d", s/86400)
	}
}

// query returns a relative URL: a page and its parameters, as name and value in turn.
// The last value of a name counts, and empty values are left out.
func query(page string, params ...any) template.URL {
	values := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		values.Set(fmt.Sprint(params[i]), fmt.Sprint(params[i+1]))
	}
	for name, v := range values {
		if v[0] == "" {
			delete(values, name)
		}
	}
	if len(values) == 0 {
		return template.URL(page)
	}
	return template.URL(page + "?" + values.Encode()) // Encode leaves nothing that has a meaning
}

// field is a hidden field of a form.
type field struct{ Name, Value string }

// does returns the fields of a form that carries out an action, with its parameters as name and
// value in turn.
func does(action string, params ...any) []field {
	fields := []field{{"action", action}}
	for i := 0; i+1 < len(params); i += 2 {
		fields = append(fields, field{fmt.Sprint(params[i]), fmt.Sprint(params[i+1])})
	}
	return fields
}

// digits is a number with its thousands apart.
func digits(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// noun is what a number counts.
func noun(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// count is a number and what it counts.
func count(n int, one, many string) string {
	return digits(n) + " " + noun(n, one, many)
}

// exact is a duration that matters to the millisecond while it is short. One from two minutes on has
// its two largest units. It is negative if clocks differ.
func exact(d time.Duration) string {
	switch {
	case d.Abs() < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d.Abs() < 2*time.Minute:
		return fmt.Sprintf("%.3f s", d.Seconds())
	}
	sign, minutes := "", int(d.Abs()/time.Minute)
	if d < 0 {
		sign = "-"
	}
	switch {
	case minutes < 60:
		return fmt.Sprintf("%s%d min %d s", sign, minutes, int(d.Abs()/time.Second)%60)
	case minutes < 24*60:
		return fmt.Sprintf("%s%d h %d min", sign, minutes/60, minutes%60)
	}
	return fmt.Sprintf("%s%d d %d h", sign, minutes/(24*60), minutes/60%24)
}

// dated is a value that a template shows, with the time at which the page was made.
type dated struct {
	Of  any
	Now time.Time
}

func at(of any, now time.Time) dated { return dated{of, now} }

// ownerText returns the owner of a claim, or a text for a record.
func ownerText(kind, owner string) string {
	switch kind {
	case explain.KindSlots:
		return "(several: each has a slot)"
	case explain.KindShared:
		return "(several: they share it)"
	}
	return owner
}
