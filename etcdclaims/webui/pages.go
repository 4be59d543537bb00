package webui

import (
	"html/template"
	"strconv"
	"strings"
	"time"
)

// page is one of the pages.
type page struct {
	Name  string
	Title string
	Menu  bool // it is in the menu
	load  func(q *request) (any, error)
}

// order is the order of the menu.
var order = []page{
	{"overview", "Overview", true, (*request).overview},
	{"claims", "Claims", true, (*request).claims},
	{"lines", "Lines", true, (*request).lines},
	{"work", "Work", true, (*request).work},
	{"schedules", "Schedules", true, (*request).schedules},
	{"queues", "Queues", true, (*request).queues},
	{"groups", "Groups", true, (*request).partitionGroups},
	{"sessions", "Sessions", true, (*request).sessions},
	{"audit", "Audit", true, (*request).audit},
	{"refusals", "Refusals", true, (*request).refusals},
	{"health", "Health", true, (*request).health},
	{"key", "Key", false, (*request).key},
	{"job", "Job", false, (*request).job},
	{"queue", "Queue", false, (*request).queue},
	{"item", "Item", false, (*request).item},
	{"group", "Group", false, (*request).group},
}

var (
	pages     map[string]page
	templates map[string]*template.Template
)

func init() {
	pages, templates = make(map[string]page), make(map[string]*template.Template)
	parse := func(name string) *template.Template {
		all := template.New("layout").Funcs(functions)
		for _, file := range []string{"layout", name} {
			text, err := assets.ReadFile("assets/" + file + ".html")
			if err != nil {
				panic(err)
			}
			template.Must(all.New(file + ".html").Parse(tables.Replace(string(text))))
		}
		return all.Lookup("layout.html")
	}
	for _, p := range order {
		pages[p.Name], templates[p.Name] = p, parse(p.Name)
	}
	templates["error"] = parse("error")
}

// tables gives the parts of tables their roles, which browsers forget where the style sheet makes
// cards of them. A cell can begin a line of a template: the end of the line before is no text of a cell.
var tables = strings.NewReplacer(
	"<table", `<table role="table"`, "<thead", `<thead role="rowgroup"`, "<tbody", `<tbody role="rowgroup"`, "<tr", `<tr role="row"`,
	"<th>", `<th role="columnheader">`, "<th ", `<th role="columnheader" `, "<th{", `<th role="columnheader"{`,
	"\n<td", `<td role="cell"`, "<td", `<td role="cell"`,
)

// functions are those of the templates.
var functions = template.FuncMap{
	"visible": visible,
	"short":   func(s string) string { return visible(cut(s, 120)) },
	"fence":   func(n int64) string { return strconv.FormatInt(n, 10) },
	"time":    timestamp,
	"ago":     ago,
	"lasts":   lasts,
	"exact":   exact,
	"at":      at,
	"span":    span,
	"seconds": func(d time.Duration) int { return int(d / time.Second) },
	"add":     func(a, b int) int { return a + b },
	"owner":   ownerText,
	"query":   query,
	"listed":  listed,
	"does":    does,
	"count":   count,
	"noun":    noun,
	"digits":  digits,
	"stamp":   func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
}
