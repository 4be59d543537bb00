package calendar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A word is a part of an expression, with its position.
type word struct {
	text string
	at   int // in bytes
}

// cut splits the word at the first sep.
func (w word) cut(sep string) (before, after word, found bool) {
	a, b, found := strings.Cut(w.text, sep)
	return word{a, w.at}, word{b, w.at + len(a) + len(sep)}, found
}

// split returns the non-empty words of s, separated by the characters for which
// isSep is true.
func split(s string, isSep func(rune) bool) (words []word) {
	start := -1
	for i, r := range s {
		switch {
		case isSep(r) && start >= 0:
			words, start = append(words, word{s[start:i], start}), -1
		case !isSep(r) && start < 0:
			start = i
		}
	}
	if start >= 0 {
		words = append(words, word{s[start:], start})
	}
	return words
}

// A parser parses one expression.
type parser struct {
	expr  string
	clock wallClock
	seen  []string // the prefixes so far
}

func (p *parser) fail(field string, at int, format string, args ...any) error {
	return &ExprError{Expr: p.expr, Field: field, Column: at + 1, Problem: fmt.Sprintf(format, args...)}
}

// macros are the expressions that have names.
var macros = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

const wantFields = "want five (minute, hour, day of month, month, day of week), " +
	"six with seconds in front, or seven with years at the end too"

func (p *parser) parse() (Schedule, error) {
	words := split(p.expr, unicode.IsSpace)
	for len(words) > 0 && strings.Contains(words[0].text, "=") {
		if err := p.prefix(words[0]); err != nil {
			return nil, err
		}
		words = words[1:]
	}
	if len(words) == 0 {
		return nil, p.fail("", len(p.expr), "the expression has no fields; "+wantFields)
	}
	name := words[0].text
	if name == "@every" {
		return p.every(words)
	}
	if name == "@at" {
		return p.at(words)
	}
	if name == "@reboot" && len(words) == 1 {
		return reboot{}, nil
	}
	if fields, ok := macros[name]; ok && len(words) == 1 {
		return p.fields(split(fields, unicode.IsSpace))
	}
	if strings.HasPrefix(name, "@") {
		return nil, p.fail("", words[0].at, "%.100q is not a known name, or more fields follow it; "+
			"want @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually or @reboot alone and in lower case, "+
			"@every with a duration, or @at with an instant", name)
	}
	return p.fields(words)
}

// prefix parses TZ=, CRON_TZ=, GAP= or FOLD=.
func (p *parser) prefix(w word) error {
	key, value, _ := w.cut("=")
	name := strings.TrimPrefix(key.text, "CRON_")
	var err error
	switch {
	case slices.Contains(p.seen, name):
		return p.fail(name, w.at, "the prefix appears twice")
	case name == "TZ":
		p.clock.zone, err = LoadZone(value.text)
	case key.text == "GAP":
		p.clock.gap, err = policy[GapPolicy](gapNames, value.text)
	case key.text == "FOLD":
		p.clock.fold, err = policy[FoldPolicy](foldNames, value.text)
	default:
		return p.fail("", w.at, "%.100q is not a known prefix; want TZ=, CRON_TZ=, GAP= or FOLD=", key.text+"=")
	}
	if err != nil {
		return p.fail(name, value.at, "%.200v", err)
	}
	p.seen = append(p.seen, name)
	return nil
}

func policy[P ~int](names []string, name string) (P, error) {
	i := slices.Index(names, name)
	if i < 0 {
		return 0, fmt.Errorf("%.100q is not a policy; want %s", name, strings.Join(names, " or "))
	}
	return P(i), nil
}

// every parses @every, a period and an optional phase.
func (p *parser) every(words []word) (Schedule, error) {
	if len(words) < 2 || len(words) > 3 {
		return nil, p.fail("@every", words[0].at, "want one duration, such as 1h30m, and optionally a second one that shifts it, such as +5m")
	}
	var durations [2]time.Duration
	for i, w := range words[1:] {
		d, err := time.ParseDuration(w.text)
		if err != nil {
			return nil, p.fail("@every", w.at, "%.100q is not a duration; want one such as 1h30m or 90s", w.text)
		}
		durations[i] = d
	}
	s, err := Every(durations[0], durations[1])
	if err != nil {
		return nil, p.fail("@every", words[1].at, "%s", strings.TrimPrefix(err.Error(), everyError))
	}
	return s, nil
}

// at parses @at and an instant.
func (p *parser) at(words []word) (Schedule, error) {
	if len(words) != 2 {
		return nil, p.fail("@at", words[0].at, "want one instant, such as 2027-01-01T09:00:00Z")
	}
	t, err := time.Parse(time.RFC3339, words[1].text)
	if err != nil {
		return nil, p.fail("@at", words[1].at, "%.100q is not an instant; want one such as 2027-01-01T09:00:00Z", words[1].text)
	}
	s, err := At(t)
	if err != nil {
		return nil, p.fail("@at", words[1].at, "%v is not within the years 1 to 2399", t)
	}
	return s, nil
}

// fields parses five, six or seven fields.
func (p *parser) fields(words []word) (Schedule, error) {
	c := &cron{wallClock: p.clock}
	switch len(words) {
	case 5:
		words = slices.Insert(words, 0, word{text: "0"})
	case 6:
	case 7:
		var err error
		if c.years, err = p.years(words[6]); err != nil {
			return nil, err
		}
	default:
		noun := "fields"
		if len(words) == 1 {
			noun = "field"
		}
		return nil, p.fail("", words[0].at, "%d %s; %s", len(words), noun, wantFields)
	}
	for i, of := range []struct {
		kind
		to *field
	}{
		{seconds, &c.second},
		{minutes, &c.minute},
		{hours, &c.hour},
		{dates, &c.days.date},
		{months, &c.month},
		{weekdays, &c.days.weekday},
	} {
		if err := p.field(of.kind, words[i], of.to, &c.days); err != nil {
			return nil, err
		}
	}
	if !c.days.possible(c.month.set, c.years) {
		return nil, p.fail(dates.name, words[3].at, "no day in the given months and years ever matches")
	}
	return c, nil
}

// field parses one of the fields but that of years.
func (p *parser) field(k kind, w word, to *field, d *days) error {
	if text, plus := strings.CutPrefix(w.text, "+"); plus && k.name == weekdays.name {
		d.both = true
		w = word{text, w.at + 1}
	}
	to.star = k.star && strings.HasPrefix(w.text, "*")
	if w.text == "?" && k.letter != nil {
		to.star, to.set = true, k.steps(1)
		return nil
	}
	return p.list(k, w, d, to.add)
}

// list parses a comma-separated list. It calls add with each value, and puts items
// with letters into d.
func (p *parser) list(k kind, w word, d *days, add func(int)) error {
	for rest, more := w, true; more; {
		var item word
		item, rest, more = rest.cut(",")
		if item.text == "" {
			return p.fail(k.name, item.at, "an item of the list is empty; want %s", k.want)
		}
		if k.letter != nil {
			known, err := k.letter(p, k, item, d)
			if err != nil {
				return err
			}
			if known {
				continue
			}
		}
		if err := p.values(k, item, add); err != nil {
			return err
		}
	}
	return nil
}

// values parses *, a or a-b, with or without /n.
func (p *parser) values(k kind, item word, add func(int)) error {
	span, every, stepped := item.cut("/")
	n := 1
	if stepped {
		var ok bool
		if n, ok = number(every.text); !ok || n < 1 || n > k.size() {
			return p.fail(k.name, every.at, "%.100q is not a step; want 1-%d", every.text, k.size())
		}
	}
	lo, hi, err := p.span(k, span, stepped)
	if err != nil {
		return err
	}
	for v := lo; v <= hi; v += n {
		add(k.lo + (v-k.lo)%k.size()) // also makes 7 Sunday
	}
	return nil
}

// span parses *, a or a-b. The greatest value is past those of the kind if a range
// wraps.
func (p *parser) span(k kind, span word, stepped bool) (lo, hi int, err error) {
	if span.text == "*" {
		return k.lo, k.hi, nil
	}
	from, to, ranged := span.cut("-")
	if ranged && (from.text == "" || to.text == "") {
		return 0, 0, p.fail(k.name, span.at, "%.100q is not a range; want two values separated by -", span.text)
	}
	if lo, err = p.value(k, from); err != nil {
		return 0, 0, err
	}
	hi = lo
	switch {
	case ranged:
		if hi, err = p.value(k, to); err != nil {
			return 0, 0, err
		}
	case stepped:
		hi = k.hi
	}
	if hi < lo && k.name == yearly.name {
		return 0, 0, p.fail(k.name, span.at, "%.100q ends before it begins", span.text)
	}
	if hi < lo {
		hi += k.size()
	}
	return lo, hi, nil
}

// value parses a number or a name.
func (p *parser) value(k kind, w word) (int, error) {
	if i := slices.Index(k.names, strings.ToUpper(w.text)); i >= 0 {
		return k.lo + i, nil
	}
	n, ok := number(w.text)
	if !ok || n < k.lo || n > k.most {
		return 0, p.fail(k.name, w.at, "%.100q is not allowed; want %s", w.text, k.want)
	}
	return n, nil
}

// number parses digits without a sign.
func number(s string) (n int, ok bool) {
	u, err := strconv.ParseUint(s, 10, 31)
	return int(u), err == nil
}

// dateLetter parses L, L-n, LW, L-nW and nW.
func (p *parser) dateLetter(k kind, w word, d *days) (known bool, err error) {
	text, weekday := strings.CutSuffix(w.text, "W")
	if rest, ok := strings.CutPrefix(text, "L"); ok {
		n := 0
		if rest != "" {
			digits, dash := strings.CutPrefix(rest, "-")
			if n, ok = number(digits); !ok || !dash || n < 1 || n > 30 {
				return false, p.fail(k.name, w.at, "%.100q is not allowed; want L, L-1 to L-30, LW, or L-1W to L-30W", w.text)
			}
		}
		if weekday {
			d.nearEnds.add(n)
		} else {
			d.ends.add(n)
		}
		return true, nil
	}
	if !weekday {
		return false, nil
	}
	n, ok := number(text)
	if !ok || n < k.lo || n > k.hi {
		return false, p.fail(k.name, w.at, "%.100q is not allowed; want LW or 1W-31W", w.text)
	}
	d.near.add(n)
	return true, nil
}

// weekdayLetter parses dL, d#L and d#n.
func (p *parser) weekdayLetter(k kind, w word, d *days) (known bool, err error) {
	of, nth, hash := w.cut("#")
	text, last := strings.CutSuffix(w.text, "L")
	if hash && nth.text == "L" {
		text = of.text
	}
	switch {
	case w.text == "L":
		return false, p.fail(k.name, w.at, "L needs a day of the week in front of it, "+
			"as in 5L for the last Friday of the month; for Saturdays write 6")
	case last:
		of.text = text
	case !hash:
		return false, nil
	}
	v, err := p.value(k, of)
	if err != nil {
		return false, err
	}
	v %= k.size()
	if last {
		d.last.add(v)
		return true, nil
	}
	n, ok := number(nth.text)
	if !ok || n < 1 || n > 5 {
		return false, p.fail(k.name, nth.at, "%.100q is not allowed after #; want 1-5 or L", nth.text)
	}
	d.nth[n].add(v)
	return true, nil
}
