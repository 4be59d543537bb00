package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A table is a result as text.
type table struct {
	title  string
	header []string
	blocks []block
}

// A block is the lines of one point.
type block struct {
	name  string
	lines [][]string
}

// table has a column for each metric, and one for what was wrong.
func (r result) table() table {
	t := table{title: r.title, header: []string{""}}
	for _, m := range r.columns {
		t.header = append(t.header, string(m))
	}
	t.header = append(t.header, "")
	for i, p := range r.points {
		b := block{name: p.name}
		for j, row := range p.rows {
			b.lines = append(b.lines, r.line(row, r.found[i].medians[j], r.found[i].errs[j]))
		}
		t.blocks = append(t.blocks, b)
	}
	return t
}

func (r result) line(row row, s sample, err error) []string {
	cells := []string{row.name}
	for _, m := range r.columns {
		cell := ""
		if v, ok := s[m]; ok {
			cell = number(v)
		}
		cells = append(cells, cell)
	}
	note := ""
	switch {
	case errors.Is(err, errAbsent):
		note = err.Error()
	case err != nil:
		note = "failed: " + err.Error()
	}
	return append(cells, strings.ReplaceAll(note, "\n", " "))
}

// String aligns numbers to the right: all columns but the first and the last.
func (t table) String() string {
	widths := make([]int, len(t.header))
	wide := func(indent int, cells []string) {
		for i, c := range cells {
			if i == 0 {
				widths[i] = max(widths[i], indent+utf8.RuneCountInString(c))
			} else {
				widths[i] = max(widths[i], utf8.RuneCountInString(c))
			}
		}
	}
	wide(0, t.header)
	for _, b := range t.blocks {
		wide(0, []string{b.name})
		for _, l := range b.lines {
			wide(2, l)
		}
	}
	var s strings.Builder
	line := func(indent string, cells []string) {
		var l strings.Builder
		for i, c := range cells {
			switch i {
			case 0:
				fmt.Fprintf(&l, "%-*s", widths[i], indent+c)
			case len(cells) - 1:
				fmt.Fprintf(&l, "  %s", c)
			default:
				fmt.Fprintf(&l, "  %*s", widths[i], c)
			}
		}
		s.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	fmt.Fprintf(&s, "\n%s\n\n", t.title)
	line("", t.header)
	for _, b := range t.blocks {
		s.WriteString(b.name + "\n")
		for _, l := range b.lines {
			line("  ", l)
		}
	}
	return s.String()
}
