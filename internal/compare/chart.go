package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The chart stands on pages that are light or dark, and an image does not learn
// which: so it has no background, and colors that are legible on both.
const (
	inkColor  = "#768390" // text and axes
	oursColor = "#2f81f7"
)

// A line is how one row does over the points of a panel, next to the reference.
type line struct {
	name   string
	color  string
	dashed bool
	ours   bool
	at     []spot
}

type spot struct {
	place int // of the x axis
	ratio float64
}

// styles are those of the rows of cycles. One that is missing is not drawn.
var styles = map[string]line{
	claimsRow:                              {name: "etcdclaims", color: oursColor, ours: true},
	mutexRow:                               {name: "etcd Mutex, shared session", color: inkColor},
	"redislock, Redis fsync always":        {name: "redislock, fsync always", color: "#b7791f"},
	"redislock, Redis without persistence": {name: "redislock, no persistence", color: "#b7791f", dashed: true},
	"row lease with fence, Postgres":       {name: "row lease, Postgres", color: "#9a6be5"},
	nestedRow:                              {name: "limit: 127 nested claims", color: "#2f9e50", dashed: true},
}

// A panel is one coordinate system.
type panel struct {
	title, axis string
	places      []int // numbers of goroutines or waiters
	lines       []line
}

// chart draws the ratios of cycles and of hand-overs, as far as they were
// measured, as SVG.
func chart(results []result, m machine) []byte {
	var panels []panel
	for _, r := range results {
		var p panel
		switch r.name {
		case "cycles":
			p = cyclePanel(r)
		case "hand-over":
			p = handOverPanel(r)
		default:
			continue
		}
		panels = append(panels, p)
	}
	d := new(drawing)
	x := 0.0
	for i, p := range panels {
		width := 670.0
		if i > 0 {
			width = 506
		}
		d.panel(p, x, width)
		x += width
	}
	x = max(x, 670)
	d.text(x/2, chartHeight-6, "middle", inkColor, "font-size='11'",
		fmt.Sprintf("logarithmic scales; medians over rounds; client and server share %d cores; etcd %s with fsync, a process of its own", m.cores, m.etcd))
	return fmt.Appendf(nil, "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%d' viewBox='0 0 %.0f %d' font-family='system-ui, -apple-system, \"Segoe UI\", \"DejaVu Sans\", sans-serif' font-size='12'>\n%s</svg>\n",
		x, chartHeight, x, chartHeight, &d.s)
}

func cyclePanel(r result) panel {
	p := panel{title: "Acquire + release, rate relative to etcd's Mutex", axis: "goroutines, each on a key of its own"}
	lines := map[string]*line{}
	var order []string
	for i, pt := range r.points {
		p.places = append(p.places, pt.n)
		for j, row := range pt.rows {
			style, ok := styles[row.name]
			v := r.found[i].medians[j][ratio]
			if !ok || v == 0 {
				continue
			}
			l := lines[row.name]
			if l == nil {
				l = &style
				lines[row.name] = l
				order = append(order, row.name)
			}
			l.at = append(l.at, spot{i, v})
		}
	}
	for _, name := range order {
		p.lines = append(p.lines, *lines[name])
	}
	return p
}

// handOverPanel has a line for waiters across clients, and one for waiters
// within one: both are points of the table.
func handOverPanel(r result) panel {
	p := panel{title: "One key handed over, rate relative to Mutex", axis: "waiters"}
	for _, pt := range r.points {
		if !slices.Contains(p.places, pt.n) {
			p.places = append(p.places, pt.n)
		}
	}
	slices.Sort(p.places)
	mutex := line{name: "etcd Mutex", color: inkColor}
	for i := range p.places {
		mutex.at = append(mutex.at, spot{i, 1})
	}
	for _, where := range []string{withinClient, acrossClients} {
		name := "claims " + where
		if where == withinClient {
			name = "claims in one client" // there is little room
		}
		l := line{name: name, color: oursColor, ours: true, dashed: where == withinClient}
		for i, pt := range r.points {
			if !strings.HasSuffix(pt.name, where) {
				continue
			}
			for j, row := range pt.rows {
				if v := r.found[i].medians[j][ratio]; row.name == claimsRow && v > 0 {
					l.at = append(l.at, spot{slices.Index(p.places, pt.n), v})
				}
			}
		}
		if len(l.at) > 0 {
			p.lines = append(p.lines, l)
		}
	}
	p.lines = append(p.lines, mutex)
	return p
}

const (
	chartHeight = 400
	chartTop    = 40.0
	chartBottom = 330.0
	gutter      = 220.0 // for the names of lines
)

type drawing struct{ s strings.Builder }

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.s, format+"\n", args...) }

func (d *drawing) text(x, y float64, anchor, color, more, s string) {
	d.add("<text x='%.1f' y='%.1f' text-anchor='%s' fill='%s' %s>%s</text>", x, y, anchor, color, more, html.EscapeString(s))
}

// panel draws one, with logarithmic scales: twice as fast is as far up as half as
// fast is down.
func (d *drawing) panel(p panel, x0, width float64) {
	lo, hi := -1.0, 1.0
	for _, l := range p.lines {
		for _, s := range l.at {
			lo, hi = min(lo, math.Floor(math.Log2(s.ratio))), max(hi, math.Ceil(math.Log2(s.ratio)))
		}
	}
	left, right := x0+46, x0+width-gutter
	first, last := math.Log2(float64(p.places[0])), math.Log2(float64(p.places[len(p.places)-1]))
	xOf := func(place int) float64 {
		return left + 14 + (right-left-28)*(math.Log2(float64(p.places[place]))-first)/max(last-first, 1)
	}
	yOf := func(ratio float64) float64 {
		return chartBottom - (chartBottom-chartTop)*(math.Log2(ratio)-lo)/(hi-lo)
	}
	d.text(left, 20, "start", inkColor, "font-size='14' font-weight='600'", p.title)
	for e := lo; e <= hi; e++ {
		y := yOf(math.Exp2(e))
		d.add("<path d='M%.1f %.1fH%.1f' stroke='%s' stroke-opacity='0.25'/>", left, y, right, inkColor)
		d.text(left-8, y+4, "end", inkColor, "", power(int(e)))
	}
	for i, n := range p.places {
		d.text(xOf(i), chartBottom+18, "middle", inkColor, "", thousands(int64(n)))
	}
	d.text((left+right)/2, chartBottom+38, "middle", inkColor, "", p.axis)
	for _, ours := range []bool{false, true} { // ours are above the others
		for _, l := range p.lines {
			if l.ours == ours {
				d.curve(l, xOf, yOf)
			}
		}
	}
	d.labels(p, xOf, yOf)
}

func (d *drawing) curve(l line, xOf func(int) float64, yOf func(float64) float64) {
	var path strings.Builder
	for i, s := range l.at {
		command := 'L'
		if i == 0 {
			command = 'M'
		}
		fmt.Fprintf(&path, "%c%.1f %.1f", command, xOf(s.place), yOf(s.ratio))
	}
	width, dashes := 1.8, ""
	if l.ours {
		width = 3
	}
	if l.dashed {
		dashes = " stroke-dasharray='6 4'"
	}
	d.add("<path d='%s' fill='none' stroke='%s' stroke-width='%.1f' stroke-linejoin='round' stroke-linecap='round'%s/>", &path, l.color, width, dashes)
	for _, s := range l.at {
		d.add("<circle cx='%.1f' cy='%.1f' r='%.1f' fill='%s'/>", xOf(s.place), yOf(s.ratio), width+0.9, l.color)
	}
}

// labels names each line at its end. Those that would overlap are moved apart.
func (d *drawing) labels(p panel, xOf func(int) float64, yOf func(float64) float64) {
	const apart = 16.0
	type tag struct {
		line
		x, y, at float64 // where the line ends; where the label stands
	}
	var last, early []tag
	for _, l := range p.lines {
		end := l.at[len(l.at)-1]
		t := tag{line: l, x: xOf(end.place), y: yOf(end.ratio)}
		t.at = t.y
		if end.place == len(p.places)-1 {
			last = append(last, t)
		} else {
			early = append(early, t)
		}
	}
	slices.SortStableFunc(last, func(a, b tag) int { return int(math.Copysign(1, a.y-b.y)) })
	for range 200 { // little by little, so that all of a heap move
		for i := 1; i < len(last); i++ {
			if gap := last[i].at - last[i-1].at; gap < apart {
				last[i-1].at -= (apart - gap) / 2
				last[i].at += (apart - gap) / 2
			}
		}
	}
	for _, t := range append(last, early...) {
		more := ""
		if t.ours {
			more = "font-weight='700'"
		}
		value := t.line.at[len(t.line.at)-1].ratio
		if math.Abs(t.at-t.y) > 1 {
			d.add("<path d='M%.1f %.1fL%.1f %.1f' stroke='%s' stroke-opacity='0.5'/>", t.x+6, t.y, t.x+22, t.at, t.color)
		}
		d.text(t.x+26, t.at+4, "start", t.color, more, fmt.Sprintf("%s %s", t.name, times(value)))
	}
}

// power prints a power of two.
func power(e int) string {
	if e < 0 {
		return fmt.Sprintf("1/%d", 1<<-e)
	}
	return fmt.Sprint(1 << e)
}

func times(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0f×", v)
	}
	return fmt.Sprintf("%.2g×", v)
}
