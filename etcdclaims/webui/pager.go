package webui

import (
	"html/template"
	"slices"
	"strconv"
)

// pageSize is how many rows a page has.
const pageSize = 100

// pager is where a page is in a list.
type pager struct {
	First, Last, Total int // counted from 1
	Prev, Next         int // pages, counted from 1; 0 without such a page
}

// paged returns a copy of the entries of a page, whose number is text. The first page is 1.
func paged[T any](page string, all []T) ([]T, pager) {
	n, _ := strconv.Atoi(page)
	last := max(1, (len(all)+pageSize-1)/pageSize)
	n = min(max(n, 1), last)
	from := (n - 1) * pageSize
	to := min(from+pageSize, len(all))
	p := pager{First: min(from+1, to), Last: to, Total: len(all), Prev: n - 1}
	if n < last {
		p.Next = n + 1
	}
	return slices.Clone(all[from:to]), p
}

// pagerLinks is a pager with what it counts, and the addresses of the pages beside.
type pagerLinks struct {
	pager
	Of            string
	Before, After template.URL // empty without such a page
}

// listed returns the links of a list's pager. params are those of query.
func listed(of string, p pager, page string, params ...any) pagerLinks {
	links := pagerLinks{pager: p, Of: of}
	if p.Prev > 0 {
		links.Before = query(page, append(params, "page", p.Prev)...)
	}
	if p.Next > 0 {
		links.After = query(page, append(params, "page", p.Next)...)
	}
	return links
}
