package calendar

import (
	"strconv"
	"time"
)

// days holds the day fields of an expression.
type days struct {
	date     field  // days of the month
	ends     set    // L-n: days before the last of the month
	near     set    // nW: the weekday nearest to that day
	nearEnds set    // L-nW
	weekday  field  // days of the week, Sunday is 0
	last     set    // nL: the last such day of the month
	nth      [6]set // d#n: nth[n] has d; nth[0] is not used
	both     bool   // +: a day must match both fields
}

const (
	sunday   = 0
	saturday = 6
)

// A month determines which days of a month match.
type month struct {
	first  int // the day of the week of the 1st
	length int
}

// from returns the first matching day in the given months and years that is not
// before start, or a day after the horizon. Days are counted from 1 January 1970.
func (d *days) from(start int64, months set, in years) int64 {
	year, mon, date := time.Unix(start*day, 0).UTC().Date()
	start -= int64(date - 1)
	for m := int(mon); start*day < forever; m, date = m+1, 1 {
		if m > 12 {
			year, m = year+1, 1
		}
		length := monthLength(year, m)
		if months.has(m) && in.has(year) {
			// The 1st of January 1970 was a Thursday.
			matching := d.in(month{first: int(modulo(start+4, 7)), length: length})
			if date := matching.from(date); date <= length {
				return start + int64(date-1)
			}
		}
		start += int64(length)
	}
	return (forever + reach) / day
}

// possible reports whether any day ever matches in the given months and years. The
// calendar repeats every 400 years, and no year before 1970 can be named.
func (d *days) possible(months set, in years) bool {
	return d.from(0, months, in) < 400*365+97
}

// in returns the days of the month that match.
func (d *days) in(m month) set {
	date := d.date.set
	for n := range d.ends.all {
		if n < m.length {
			date.add(m.length - n)
		}
	}
	for n := range d.near.all {
		if n <= m.length {
			date.add(m.nearest(n))
		}
	}
	for n := range d.nearEnds.all {
		if n < m.length {
			date.add(m.nearest(m.length - n))
		}
	}
	weekday := m.weekdays(d.weekday.set) | m.weekdays(d.last)&between(m.length-6, m.length)
	for n, of := range d.nth {
		if of != 0 {
			weekday |= m.weekdays(of) & between(7*n-6, 7*n)
		}
	}
	if d.date.star || d.weekday.star || d.both {
		return date & weekday & between(1, m.length)
	}
	return (date | weekday) & between(1, m.length)
}

// weekdays returns the days of the month that fall on one of the given days of
// the week. It counts on to day 35.
func (m month) weekdays(of set) set {
	week := of>>m.first | of<<(7-m.first)&between(0, 6)
	return (week | week<<7 | week<<14 | week<<21 | week<<28) << 1
}

// nearest returns the day from Monday to Friday that is nearest to the given
// day of the month, in the same month.
func (m month) nearest(date int) int {
	switch (m.first + date - 1) % 7 {
	case saturday:
		if date == 1 {
			return 3
		}
		return date - 1
	case sunday:
		if date == m.length {
			return date - 2
		}
		return date + 1
	}
	return date
}

func monthLength(year, m int) int {
	switch m {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// dateItems and weekdayItems return the canonical text of the items with letters
// in the two day fields.

func (d *days) dateItems() (items []string) {
	for n := range d.ends.all {
		items = append(items, fromEnd(n))
	}
	for n := range d.near.all {
		items = append(items, strconv.Itoa(n)+"W")
	}
	for n := range d.nearEnds.all {
		items = append(items, fromEnd(n)+"W")
	}
	return items
}

func (d *days) weekdayItems() (items []string) {
	for n := range d.last.all {
		items = append(items, strconv.Itoa(n)+"L")
	}
	for n, of := range d.nth {
		for weekday := range of.all {
			items = append(items, strconv.Itoa(weekday)+"#"+strconv.Itoa(n))
		}
	}
	return items
}

// plus returns the + of an expression in which it makes a difference.
func (d *days) plus() string {
	if d.both && !d.date.star && !d.weekday.star {
		return "+"
	}
	return ""
}

func fromEnd(n int) string {
	if n == 0 {
		return "L"
	}
	return "L-" + strconv.Itoa(n)
}
