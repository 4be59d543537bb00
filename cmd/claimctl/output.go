package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/etcdclaims/claims/internal/errtext"
	"github.com/etcdclaims/claims/internal/explain"
)

// Formats of the output.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatLines = "jsonl"
	formatYAML  = "yaml"
	formatName  = "name"
)

var formats = []string{formatTable, formatWide, formatJSON, formatLines, formatYAML, formatName}

func isFormat(s string) bool { return slices.Contains(formats, s) }

// forPeople reports whether the output is text and not data.
func (a *app) forPeople() bool { return a.format == formatTable || a.format == formatWide }

// printList prints what a command lists, in a table with the columns of the header, separated
// by commas. JSON of an empty list is []. Entries that cannot be read hide no others: their errors
// are returned together.
func printList[T view](a *app, columns string, rows iter.Seq2[T, error]) (unread error) {
	all := []T{}
	for r, err := range rows {
		if err != nil {
			unread = errtext.Both(unread, err)
		} else {
			all = append(all, r)
		}
	}
	if unread != nil && len(all) == 0 { // it is not known that the list is empty
		return unread
	}
	sortRows(all, a.sortBy)
	return errtext.Both(printRows(a, columns, all), unread)
}

func printRows[T view](a *app, columns string, all []T) error {
	switch a.format {
	case formatJSON, formatYAML:
		return a.printJSON(all)
	case formatTable, formatWide:
		of := reflect.TypeFor[T]()
		t := newTable(of, columns)
		for _, r := range all {
			t.add(views(t.header, func(name string) string { return columnOf(of, name).value(r) })...)
		}
		return t.print(a.out, a.tableWidth())
	}
	for _, r := range all {
		if err := printOne(a, r, nil); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printJSON(v any) error { return a.encode(v, "  ") }

func (a *app) printLine(v any) error { return a.encode(v, "") }

func (a *app) encode(v any, indent string) error {
	if a.format == formatYAML {
		return printYAML(a.out, v)
	}
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// printOne prints one thing; without a text its columns, each on a line of its own.
func printOne(a *app, v view, text func(io.Writer)) error {
	switch a.format {
	case formatJSON, formatYAML:
		return a.printJSON(v)
	case formatLines:
		return a.printLine(v)
	case formatName:
		_, err := fmt.Fprintln(a.out, nameOf(v))
		return err
	}
	if text == nil {
		text = func(w io.Writer) { details(w, v) }
	}
	text(a.out)
	return nil
}

// say prints what a command did, for people.
func (a *app) say(format string, args ...any) {
	if a.forPeople() {
		_, _ = fmt.Fprintf(a.out, "%s\n", clean(fmt.Sprintf(format, args...)))
	}
}

// tableWidth returns how wide tables may be.
func (a *app) tableWidth() int {
	if a.format == formatWide {
		return math.MaxInt
	}
	return cmp.Or(a.width, 80)
}

// sequence yields a slice as printList takes it, and then the errors.
func sequence[T any](all []T, then ...error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
		for _, err := range then {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
		}
	}
}

// views returns the views of a slice.
func views[T, V any](all []T, view func(T) V) []V {
	vs := make([]V, len(all)) // in JSON an empty one is []
	for i, is := range all {
		vs[i] = view(is)
	}
	return vs
}

// mapped yields what a function makes of each value.
func mapped[T, V any](all iter.Seq2[T, error], view func(T) V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for v, err := range all {
			if !yield(view(v), err) {
				return
			}
		}
	}
}

// doneView is what a verb changed. Each verb sets the names that it took and what it
// learned.
type doneView struct {
	Done    string    `json:"done"` // such as released or paused
	Key     string    `json:"key,omitempty"`
	Fence   int64     `json:"fence,omitempty,string"` // of the term that was ended
	Slots   *int      `json:"slots,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Group   string    `json:"group,omitempty"`
	Member  string    `json:"member,omitempty"` // of the group
	Job     string    `json:"job,omitempty"`
	Tag     string    `json:"tag,omitempty"`    // of jobs
	Nominal time.Time `json:"nominal,omitzero"` // the tick
	Run     string    `json:"run,omitempty"`    // ID of the run, or of the backfill, that was requested
	Until   time.Time `json:"until,omitzero"`   // when the pause ends by itself
	Queue   string    `json:"queue,omitempty"`
	Item    string    `json:"item,omitempty"`
	Items   *int      `json:"items,omitempty"` // how many
}

// name is the most specific of the names: scripts continue with it.
func (v doneView) name() string {
	count := ""
	if v.Items != nil {
		count = strconv.Itoa(*v.Items)
	}
	for _, name := range []string{v.Run, explain.Stamp(v.Nominal), v.Item, count, v.Job, v.Tag, v.Member, v.Queue, v.Key} {
		if name != "" {
			return name
		}
	}
	return v.Group
}

// done prints what was done unless there is an error: the text in a table, the view in
// the other formats.
func (a *app) done(err error, v view, format string, args ...any) error {
	if err != nil {
		return err
	}
	return printOne(a, v, func(io.Writer) { a.say(format, args...) })
}
