package ical_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// model is a rule that is evaluated in the most simple way: day by day.
type model struct {
	freq      string
	interval  int
	count     int
	until     time.Time
	weekStart time.Weekday
	byDay     []string
	months    []int
	monthDays []int
	yearDays  []int
	weeks     []int
	positions []int
}

var weekdayNames = []string{"SU", "MO", "TU", "WE", "TH", "FR", "SA"}

func lastDay(d time.Time) int  { return time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day() }
func lastYearDay(year int) int { return time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).YearDay() }
func one(all []int, n, last int) bool {
	return len(all) == 0 || slices.Contains(all, n) || slices.Contains(all, n-last-1)
}

// week is the first day of the week that a day is in.
func (m model) week(d time.Time) time.Time {
	return d.AddDate(0, 0, -(int(d.Weekday()-m.weekStart)+7)%7)
}

func (m model) weekNumber(d time.Time) int { return (m.week(d).AddDate(0, 0, 3).YearDay()-1)/7 + 1 }

func (m model) hasWeekday(d time.Time) bool {
	n, last := d.YearDay(), lastYearDay(d.Year())
	if m.freq == "MONTHLY" || len(m.months) > 0 {
		n, last = d.Day(), lastDay(d)
	}
	name := weekdayNames[d.Weekday()]
	return len(m.byDay) == 0 || slices.Contains(m.byDay, name) ||
		slices.Contains(m.byDay, fmt.Sprint((n-1)/7+1, name)) || slices.Contains(m.byDay, fmt.Sprint(-(last-n)/7-1, name))
}

func (m model) has(d, start time.Time) bool {
	if !one(m.months, int(d.Month()), 12) || !one(m.monthDays, d.Day(), lastDay(d)) || !one(m.yearDays, d.YearDay(), lastYearDay(d.Year())) ||
		len(m.weeks) > 0 && !slices.Contains(m.weeks, m.weekNumber(d)) || !m.hasWeekday(d) {
		return false
	}
	if len(m.byDay)+len(m.monthDays)+len(m.yearDays) > 0 {
		return true
	}
	switch {
	case m.freq == "WEEKLY" || len(m.weeks) > 0:
		return d.Weekday() == start.Weekday()
	case m.freq == "MONTHLY" || m.freq == "YEARLY" && len(m.months) > 0:
		return d.Day() == start.Day()
	case m.freq == "YEARLY":
		return d.Day() == start.Day() && d.Month() == start.Month()
	}
	return true
}

// period is the number of the period that a day is in.
func (m model) period(d, start time.Time) int {
	switch m.freq {
	case "YEARLY":
		return d.Year() - start.Year()
	case "MONTHLY":
		return 12*(d.Year()-start.Year()) + int(d.Month()-start.Month())
	case "WEEKLY":
		return int(m.week(d).Sub(m.week(start)).Hours()) / (7 * 24)
	}
	return int(d.Sub(start).Hours()) / 24
}

// days returns the days of the rule until the end of a year.
func (m model) days(start time.Time, year int) (all []time.Time) {
	var days []time.Time
	period := 0
	flush := func() {
		for i, d := range days {
			done := m.count > 0 && len(all) == m.count || !m.until.IsZero() && d.After(m.until)
			if !done && !d.Before(start) && one(m.positions, i+1, len(days)) {
				all = append(all, d)
			}
		}
		days = nil
	}
	for d := time.Date(start.Year(), 1, 1, 0, 0, 0, 0, time.UTC); d.Year() <= year; d = d.AddDate(0, 0, 1) {
		is := m.period(d, start)
		if is < 0 {
			continue
		}
		if is != period {
			flush()
			period = is
		}
		if is%m.interval == 0 && m.has(d, start) {
			days = append(days, d)
		}
	}
	flush()
	return all
}

func (m model) String() string {
	text := fmt.Sprintf("FREQ=%s;INTERVAL=%d;WKST=%s", m.freq, m.interval, weekdayNames[m.weekStart])
	if m.count > 0 {
		text += fmt.Sprintf(";COUNT=%d", m.count)
	}
	if !m.until.IsZero() {
		text += ";UNTIL=" + m.until.Format("20060102")
	}
	for _, list := range []struct {
		name string
		all  []int
	}{{"BYMONTH", m.months}, {"BYMONTHDAY", m.monthDays}, {"BYYEARDAY", m.yearDays}, {"BYWEEKNO", m.weeks}, {"BYSETPOS", m.positions}} {
		if len(list.all) > 0 {
			text += ";" + list.name + "=" + strings.ReplaceAll(strings.Trim(fmt.Sprint(list.all), "[]"), " ", ",")
		}
	}
	if len(m.byDay) > 0 {
		text += ";BYDAY=" + strings.ReplaceAll(strings.Join(m.byDay, ","), " ", "")
	}
	return text
}

// randomModel returns a rule that the package supports.
func randomModel(rng *rand.Rand, start time.Time) model {
	m := model{freq: []string{"DAILY", "WEEKLY", "MONTHLY", "YEARLY"}[rng.IntN(4)], interval: 1, weekStart: time.Monday}
	once := func(in int) bool { return rng.IntN(in) == 0 }
	some := func(most, last int, negative bool) (all []int) {
		for range 1 + rng.IntN(most) {
			n := 1 + rng.IntN(last)
			if negative && once(3) {
				n = -n
			}
			all = append(all, n)
		}
		return all
	}
	long := m.freq == "MONTHLY" || m.freq == "YEARLY"
	if once(3) {
		m.interval += rng.IntN(5)
	}
	if once(4) {
		m.weekStart = time.Weekday(rng.IntN(7))
	}
	switch rng.IntN(4) {
	case 0:
		m.count = 1 + rng.IntN(40)
	case 1:
		m.until = start.AddDate(0, 0, rng.IntN(3000))
	}
	if once(3) {
		m.months = some(3, 12, false)
	}
	if once(3) && m.freq != "WEEKLY" {
		m.monthDays = some(3, 31, true)
	}
	if once(6) && m.freq == "YEARLY" {
		m.yearDays = some(4, 366, true)
	}
	if once(6) && m.freq == "YEARLY" {
		m.weeks = some(3, 51, false)
	}
	if once(2) {
		last := 5
		if m.freq == "YEARLY" && len(m.months) == 0 {
			last = 53
		}
		numbered := once(2) && long && len(m.weeks) == 0
		for range 1 + rng.IntN(3) {
			day := weekdayNames[rng.IntN(7)]
			if numbered {
				day = fmt.Sprint(some(1, last, true)[0], day)
			}
			m.byDay = append(m.byDay, day)
		}
	}
	if once(3) && long {
		m.positions = some(2, 5, true)
	}
	return m
}
