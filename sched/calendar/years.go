package calendar

import (
	"strconv"
	"strings"
)

var yearly = kind{name: "year", lo: 1970, hi: 2199, most: 2199, want: "1970-2199"}

// years holds the years that an expression names, or all.
type years struct {
	named bool
	of    [4]set // the years from 1970 on, 64 in each
}

func (y *years) add(year int) { y.of[(year-yearly.lo)/64].add((year - yearly.lo) % 64) }

func (y years) has(year int) bool {
	if !y.named {
		return true
	}
	return yearly.lo <= year && year <= yearly.hi && y.of[(year-yearly.lo)/64].has((year-yearly.lo)%64)
}

// text returns the canonical text of the field.
func (y years) text() string {
	var items []string
	for year := yearly.lo; year <= yearly.hi; year++ {
		first := year
		for year <= yearly.hi && y.has(year) {
			year++
		}
		switch year - first {
		case 0:
		case 1:
			items = append(items, strconv.Itoa(first))
		default:
			items = append(items, strconv.Itoa(first)+"-"+strconv.Itoa(year-1))
		}
	}
	return strings.Join(items, ",")
}

// years parses the last of seven fields. A star alone names no year.
func (p *parser) years(w word) (y years, err error) {
	if w.text == "*" {
		return y, nil
	}
	y.named = true
	return y, p.list(yearly, w, nil, y.add)
}
