package webui

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/etcdclaims/claims/etcdclaims/admin"
)

// termRow is a term with its times.
type termRow struct {
	admin.Term
	Seen         lifetime  // by this page
	began, until time.Time // as far as they are known: see termRows
}

// guessed reports whether this page did not see all of the term.
func (r termRow) guessed() bool {
	return r.Seen.Began.IsZero() || r.Seen.Ended.IsZero() && r.Ending != ""
}

// termRows dates terms, which are given oldest first. A term that was not seen to begin begins when its
// holder asked, by its clock, but not before the one before it has ended. One that was not seen to end
// ends when the next one begins, or when the page began to see all, at the latest.
func termRows(terms []admin.Term, seen []lifetime, since, now time.Time) []termRow {
	rows := make([]termRow, len(terms))
	earliest := time.Time{}
	for i, t := range terms {
		r := termRow{Term: t, Seen: seen[i], began: seen[i].Began, until: seen[i].Ended}
		if r.began.IsZero() {
			r.began = later(t.Since, earliest)
		}
		if r.began.IsZero() || r.began.After(now) {
			r.began = now
		}
		earliest = later(r.began, r.until)
		rows[i] = r
	}
	next := now
	if n := len(rows) - 1; n >= 0 && rows[n].Ending != "" && since.After(rows[n].began) {
		next = since
	}
	for i := len(rows) - 1; i >= 0; i-- {
		if rows[i].until.IsZero() {
			rows[i].until = later(next, rows[i].began)
		}
		next = rows[i].began
	}
	return rows
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// timeline is a picture of the terms of a key: one bar for each, newest at the top, over time.
type timeline struct {
	Width, Height int
	First, Last   time.Time
	Bars          []bar
	Guessed       bool // one of them
}

// bar is one term.
type bar struct {
	termRow
	X, Y, Width int
	TextX       int
	Anchor      string // of the text
	Class       string // how it ended, and whether its times are guessed
}

const (
	timelineWidth = 640
	barPitch      = 26
	mostBars      = 12
	narrowest     = 4 // pixels
	// widest is the width of a character of a text in the picture: on a phone, whose style sheet enlarges them.
	widest = 11
)

// newTimeline draws the newest terms, which are given oldest first.
func newTimeline(terms []termRow, now time.Time) timeline {
	terms = terms[max(0, len(terms)-mostBars):]
	if len(terms) == 0 {
		return timeline{}
	}
	t := timeline{Width: timelineWidth, Height: len(terms)*barPitch + 22, First: terms[0].began, Last: now}
	for _, term := range terms { // by clocks that differ
		if term.began.Before(t.First) {
			t.First = term.began
		}
	}
	if last := terms[len(terms)-1]; last.Ending != "" { // the end of the last term is what matters, not the time since
		t.Last = last.until.Add(max(time.Second, last.until.Sub(t.First)/10))
	}
	t.Last = later(t.Last, t.First.Add(time.Second))
	scale := func(at time.Time) int {
		return int(at.Sub(t.First).Seconds() / t.Last.Sub(t.First).Seconds() * timelineWidth)
	}
	for i := range terms {
		term := terms[len(terms)-1-i]
		b := bar{termRow: term, X: scale(term.began), Y: i * barPitch, Class: class(term.Term)}
		if term.guessed() {
			b.Class += " guessed"
			t.Guessed = true
		}
		b.Width = max(scale(term.until)-b.X, narrowest)
		b.X = min(b.X, timelineWidth-b.Width)
		b.place()
		t.Bars = append(t.Bars, b)
	}
	return t
}

// place puts the text where there is room for it: into the bar, behind or before it, or else over it.
func (b *bar) place() {
	room := widest * utf8.RuneCountInString(b.Text())
	b.TextX, b.Anchor = max(min(b.X+8, timelineWidth-room), 0), "start"
	switch end := b.X + b.Width; {
	case room+16 <= b.Width:
	case end+6+room <= timelineWidth:
		b.TextX = end + 6
	case room+6 <= b.X:
		b.TextX, b.Anchor = b.X-6, "end"
	}
}

// class is how a term is coloured.
func class(t admin.Term) string {
	switch t.Ending {
	case "":
		return "now"
	case "released", "done", "handed over", "free":
		return "well"
	case "forced", "replaced", "suspected":
		return "forced"
	case "lease ended", "failed", "dead":
		return "lost"
	}
	return "unknown"
}

// Label names the owner.
func (b bar) Label() string { return ownerText(b.Kind, b.Owner) }

// Text is the text at the bar. It fits into the picture.
func (b bar) Text() string {
	const most = timelineWidth/widest - 1
	text := []rune(visible(fmt.Sprintf("%d %s", b.Fence, b.Label())))
	if len(text) > most {
		text = append(text[:most-1], '…')
	}
	return string(text)
}

// Title is what a screen reader reads of a bar.
func (b bar) Title() string {
	ending, until := string(b.Ending), timestamp(b.until)
	if ending == "" {
		ending, until = "held", "now"
	}
	about := ""
	if b.guessed() {
		about = "about "
	}
	return fmt.Sprintf("fence %d, %s, %s, %s%s to %s", b.Fence, visible(b.Label()), ending, about, timestamp(b.began), until)
}

// mostObserved is how many terms a page remembers the times of.
const mostObserved = 2000

// observed are the times of the newest terms that were seen to begin or to end. etcd does not store
// them. Its owner guards it.
type observed struct {
	since time.Time // from then on no change was missed
	times map[termID]lifetime
	order []termID // of times, oldest first
}

type termID struct {
	key   string
	fence int64
}

// lifetime is when a term was seen to begin and to end. What was not seen is zero.
type lifetime struct{ Began, Ended time.Time }

func (o *observed) begin(key string, fence int64, now time.Time) {
	o.put(termID{key, fence}, lifetime{Began: now})
}

func (o *observed) end(key string, fence int64, now time.Time) {
	id := termID{key, fence}
	o.put(id, lifetime{o.times[id].Began, now})
}

// put notes the times of a term, and forgets those of the term that was first seen.
func (o *observed) put(id termID, l lifetime) {
	if o.times == nil {
		o.times = make(map[termID]lifetime)
	}
	if _, known := o.times[id]; !known {
		o.order = append(o.order, id)
	}
	o.times[id] = l
	if len(o.order) > mostObserved {
		delete(o.times, o.order[0])
		o.order = o.order[1:]
	}
}
