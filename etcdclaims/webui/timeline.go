package webui

import (
	"fmt"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/admin"
)

// timeline is a picture of the terms of a key: one bar for each, newest at the top, over
// etcd's revisions. Revisions are the only order that all processes share.
type timeline struct {
	Width, Height int
	First, Last   int64 // revisions
	Bars          []bar
}

// bar is one term.
type bar struct {
	X, Y, Width int
	TextX       int
	Anchor      string // of the text
	Class       string // how it ended
	Fence       int64
	Owner       string
	Ending      string
	Since       time.Time
}

const (
	timelineWidth = 640
	barPitch      = 26
	mostBars      = 12
	narrowest     = 4 // pixels
)

// newTimeline draws the newest terms, which are given oldest first, up to a revision.
func newTimeline(terms []admin.Term, now int64) timeline {
	terms = terms[max(0, len(terms)-mostBars):]
	if len(terms) == 0 {
		return timeline{}
	}
	t := timeline{Width: timelineWidth, Height: len(terms)*barPitch + 22, First: terms[0].Revision(), Last: now}
	if last := terms[len(terms)-1]; last.EndRevision > 0 { // the end of the last term is what matters, not the writes since
		t.Last = last.EndRevision + max(1, (last.EndRevision-t.First)/10)
	}
	t.Last = max(t.Last, t.First+1)
	scale := func(rev int64) int {
		return int(float64(rev-t.First) / float64(t.Last-t.First) * timelineWidth)
	}
	for i := range terms {
		term := terms[len(terms)-1-i]
		end := term.EndRevision
		if end == 0 {
			end = t.Last
		}
		b := bar{
			X:      scale(term.Revision()),
			Y:      i * barPitch,
			Class:  class(term),
			Fence:  term.Fence,
			Owner:  ownerText(term.Kind, term.Owner),
			Since:  term.Since,
			Ending: string(term.Ending),
		}
		b.Width = max(scale(end)-b.X, narrowest)
		b.X = min(b.X, timelineWidth-b.Width)
		b.TextX, b.Anchor = b.X+b.Width+6, "start"
		switch {
		case b.Width > 220:
			b.TextX = b.X + 8
		case b.X+b.Width > timelineWidth*2/3:
			b.TextX, b.Anchor = b.X-6, "end"
		}
		if term.Ending == "" {
			b.Ending = "held"
		}
		t.Bars = append(t.Bars, b)
	}
	return t
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

// Text is what a screen reader reads of a bar.
func (b bar) Text() string {
	return fmt.Sprintf("fence %d, %s, %s", b.Fence, visible(b.Owner), b.Ending)
}
