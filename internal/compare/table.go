package main

import (
	"errors"
	"fmt"
	"io"
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

// table has a column for each metric, and one for aims and what was wrong.
func (r result) table() table {
	t := table{title: r.title, header: []string{""}}
	for _, m := range r.columns {
		t.header = append(t.header, string(m))
	}
	t.header = append(t.header, "aim")
	for i, p := range r.points {
		b := block{name: p.name}
		for j, row := range p.rows {
			b.lines = append(b.lines, r.line(row, r.found[i].medians[j], r.reference(i), r.found[i].errs[j]))
		}
		t.blocks = append(t.blocks, b)
	}
	return t
}

// reference returns the medians of a point's reference.
func (r result) reference(point int) sample {
	for j, row := range r.points[point].rows {
		if row.reference {
			return r.found[point].medians[j]
		}
	}
	return nil
}

func (r result) line(row row, s, reference sample, err error) []string {
	cells := []string{row.name}
	for _, m := range r.columns {
		cell := ""
		if v, ok := s[m]; ok {
			cell = number(v)
		}
		cells = append(cells, cell)
	}
	var notes []string
	for _, a := range row.aims {
		if text := a.text(s, reference); text != "" {
			notes = append(notes, text)
		}
	}
	switch {
	case errors.Is(err, errAbsent):
		notes = append(notes, err.Error())
	case err != nil:
		notes = append(notes, "failed: "+err.Error())
	}
	return append(cells, strings.ReplaceAll(strings.Join(notes, "; "), "\n", " "))
}

func (t table) print(out io.Writer, markdown bool) error {
	text := t.plain()
	if markdown {
		text = t.markdown()
	}
	_, err := io.WriteString(out, text)
	return err
}

// plain aligns numbers to the right: all columns but the first and the last.
func (t table) plain() string {
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

func (t table) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "\n**%s**\n\n|%s |\n|---|", t.title, strings.Join(t.header, " | "))
	for range t.header[2:] {
		s.WriteString("---:|")
	}
	s.WriteString("---|\n")
	for _, b := range t.blocks {
		fmt.Fprintf(&s, "| **%s** |%s\n", b.name, strings.Repeat(" |", len(t.header)-1))
		for _, l := range b.lines {
			fmt.Fprintf(&s, "| %s |\n", strings.ReplaceAll(strings.Join(l, "\x00"), "|", `\|`))
		}
	}
	return strings.ReplaceAll(s.String(), "\x00", " | ")
}
