package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// A table is text in columns. The columns that matter most are on the left.
type table struct {
	header []string
	short  []bool // columns whose texts may be cut off
	rows   [][]string
	paint  func(column int, cell string) string // of a padded cell; nil without colors
}

// newTable returns an empty table with columns of a view, whose names are separated by commas.
func newTable(of reflect.Type, columns string) *table {
	t := &table{header: strings.Split(columns, ",")}
	for _, name := range t.header {
		t.short = append(t.short, columnOf(of, name).short)
	}
	return t
}

// add adds a row. A text of several lines is shown as its first one.
func (t *table) add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		if row[i] = clean(firstLine(cell)); cell == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// print prints the columns that fit in lines of a width: from the left, and those without a text
// only where room is left.
func (t *table) print(w io.Writer, width int) error {
	widths := t.fit(width)
	for _, row := range append([][]string{t.header}, t.rows...) {
		var b strings.Builder
		for i, cell := range row {
			if widths[i] > 0 {
				cell = fmt.Sprintf("%-*s", widths[i], shorten(cell, widths[i]))
				if t.paint != nil {
					cell = t.paint(i, cell)
				}
				b.WriteString(cell + "  ")
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// fit returns the widths of the columns, 0 for those that do not fit. Next to a long name in the
// first column the others have some room.
func (t *table) fit(width int) []int {
	const gap, leastText, leastOthers = 2, 20, 30
	widths, order := make([]int, len(t.header)), make([]int, len(t.header))
	empty := make([]int, len(t.header)) // 1: no row has a text
	for i, name := range t.header {
		widths[i], order[i], empty[i] = utf8.RuneCountInString(name), i, min(i, 1)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			if row[i] != "-" {
				empty[i] = 0
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(empty[a], empty[b]) })
	room := max(width-widths[0], leastOthers)
	for _, i := range order[1:] {
		if most := room - gap; t.short[i] && most >= leastText {
			widths[i] = min(widths[i], most)
		} else if widths[i] > most {
			widths[i] = 0
			continue
		}
		room -= gap + widths[i]
	}
	return widths
}

// lineWidth returns the width of the terminal in characters, or 80 if the output is not a terminal.
func lineWidth(out io.Writer) int {
	if terminal, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}
