package webui

import (
	"cmp"
	"context"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/internal/explain"
)

// claimsPage lists claims, or one level of the tree that the slashes in their keys make.
type claimsPage struct {
	selection
	Sort    string // a column, with a minus if it falls
	Tree    bool
	Kinds   []string
	Columns []column
	Folded  int // internal claims that are not shown
	Claims  []claimRow
	HasKind bool // a claim that is shown has a kind
	Total   int  // claims
	Pager   pager
	Reading bool
	Err     error
}

// claimRow is a claim, or a level of the tree with the claims below it.
type claimRow struct {
	*etcdclaims.Info
	Below   int // claims; 0 for a claim
	Waiting int
	Renewed time.Time // its session, as far as the sessions are read; else zero
}

// HasKind reports whether there is something to show in the column Kind.
func (r claimRow) HasKind() bool { return r.Below == 0 && (kindOf(*r.Info) != "" || r.Attempt > 0) }

// column is a column that claims can be sorted by.
type column struct {
	Title, Class string
	Sort         string // a click sorts so
	Label        string // of that order
	Sorted       string // for screen readers, if it is sorted by this column
	compare      func(a, b claimRow) int
}

// claimColumns are all but the kind. Each is sorted first by what matters more.
var claimColumns = []column{
	{Title: "Key", Sort: "", Label: "key", compare: func(a, b claimRow) int { return strings.Compare(a.Key, b.Key) }},
	{Title: "Owner", Sort: "owner", Label: "owner", compare: func(a, b claimRow) int { return strings.Compare(a.Owner, b.Owner) }},
	{
		Title: "Fence", Class: "num", Sort: "-fence", Label: "newest first",
		compare: func(a, b claimRow) int { return cmp.Compare(a.Fence, b.Fence) },
	},
	{Title: "Asked", Sort: "asked", Label: "asked first", compare: func(a, b claimRow) int { return a.Since.Compare(b.Since) }},
	{
		Title: "Waiting", Class: "num", Sort: "-waiting", Label: "most waiting",
		compare: func(a, b claimRow) int { return a.Waiting - b.Waiting },
	},
	{
		Title: "Renewed", Sort: "renewed", Label: "not renewed for longest",
		compare: func(a, b claimRow) int { return a.Renewed.Compare(b.Renewed) },
	},
}

func (q *request) claims() (any, error) {
	p := claimsPage{
		selection: selection{
			Prefix: q.param("prefix"), Kind: q.param("kind"), Text: q.param("text"), Owner: q.param("owner"), Internal: q.param("internal") != "",
		},
		Sort:  q.param("sort"),
		Tree:  q.param("tree") != "",
		Kinds: []string{"zombie", "resting", "lock", explain.KindSlots, explain.KindShared, unleased},
	}
	p.Internal = p.Internal || explain.FeatureOf(p.Prefix) != "" // a prefix of theirs shows them
	b := q.useClaims(p.Prefix)
	claims, folded := b.selected(p.selection)
	p.Folded, p.Total = folded, len(claims)
	all := q.claimRows(claims)
	if p.Tree {
		all = level(all, p.Prefix)
	}
	p.sort(all)
	p.Claims, p.Pager = paged(q.param("page"), all)
	p.HasKind = slices.ContainsFunc(p.Claims, claimRow.HasKind)
	s := b.summary()
	p.Reading, p.Err = s.Reading, s.Err
	return p, nil
}

// claimRows adds the number of waiters and the time of the last renewal to each claim. It waits only
// briefly for them: claims are shown without what etcd does not tell in time.
func (q *request) claimRows(claims []*etcdclaims.Info) []claimRow {
	wait := q.wait
	q.wait.until = wait.again
	lines, _ := q.allLines()
	sessions, read := q.allSessions()
	q.wait = wait
	waiting, renewed := make(map[string]int, len(lines)), make(map[int64]time.Time, len(sessions))
	for _, l := range lines {
		waiting[l.Key] = l.Waiting
	}
	for _, s := range sessions {
		renewed[int64(s.Lease)] = read.At.Add(s.Left - s.TTL)
	}
	rows := make([]claimRow, len(claims))
	for n, i := range claims {
		rows[n] = claimRow{Info: i, Waiting: waiting[i.Key], Renewed: renewed[int64(i.Lease)]}
	}
	return rows
}

// level returns the rows of one level: the next ones below the prefix, and the claims that are on it.
// The rows are in the order of their keys.
func level(all []claimRow, prefix string) (rows []claimRow) {
	for _, r := range all {
		name, _, below := strings.Cut(r.Key[len(prefix):], "/")
		if !below {
			rows = append(rows, r)
			continue
		}
		key := prefix + name + "/"
		if n := len(rows) - 1; n >= 0 && rows[n].Below > 0 && rows[n].Key == key {
			rows[n].Below++
			rows[n].Waiting += r.Waiting
		} else {
			rows = append(rows, claimRow{Info: &etcdclaims.Info{Key: key}, Below: 1, Waiting: r.Waiting})
		}
	}
	return rows
}

// sort sorts the rows, which are in the order of their keys, levels first. An unknown order is that
// of the keys.
func (p *claimsPage) sort(rows []claimRow) {
	p.Columns = slices.Clone(claimColumns)
	name, falls := strings.CutPrefix(p.Sort, "-")
	by := slices.IndexFunc(p.Columns, func(c column) bool { return strings.TrimPrefix(c.Sort, "-") == name })
	if by < 0 {
		by, falls, p.Sort = 0, false, ""
	}
	c := &p.Columns[by]
	c.Sorted, c.Sort = "ascending", "-"+name
	if falls {
		c.Sorted, c.Sort = "descending", name
	}
	if by == 0 && !falls && !p.Tree {
		return
	}
	slices.SortStableFunc(rows, func(a, b claimRow) int {
		order := c.compare(a, b)
		if falls {
			order = -order
		}
		return cmp.Or(cmp.Compare(min(b.Below, 1), min(a.Below, 1)), order)
	})
}

// Orders are the orders to choose from where no column has a heading, as on a phone.
func (p claimsPage) Orders() []column {
	if slices.ContainsFunc(claimColumns, func(c column) bool { return c.Sort == p.Sort }) {
		return claimColumns
	}
	return append(slices.Clone(claimColumns), column{Sort: p.Sort, Label: "the reverse"})
}

// Width is how many columns there are.
func (p claimsPage) Width() int {
	if p.HasKind {
		return len(p.Columns) + 1
	}
	return len(p.Columns)
}

// With is the address of this page with other values of some parameters, on its first page.
func (p claimsPage) With(changes ...any) template.URL {
	return query("claims", append([]any{
		"prefix", p.Prefix, "kind", p.Kind, "text", p.Text, "owner", p.Owner, "sort", p.Sort, "tree", mark(p.Tree), "internal", mark(p.Internal),
	}, changes...)...)
}

// mark is a parameter that is set or not.
func mark(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// Up is the prefix of the level above, of a level of the tree.
func (p claimsPage) Up() string {
	above := strings.TrimSuffix(p.Prefix, "/")
	return above[:strings.LastIndex(above, "/")+1]
}

// lineRow is a key that callers wait for.
type lineRow struct {
	admin.LineInfo
	Holder etcdclaims.Info
}

// mostRows is how many entries are read of lists that are not kept in memory.
const mostRows = 1000

func (q *request) lines() (any, error) {
	b := q.useClaims("")
	all, fresh := q.allLines()
	q.shows.claims = false // what changes most does not change the lines
	return listOf(q, all, fresh, mostRows, func(l admin.LineInfo) lineRow {
		holder, _ := b.holder(l.Key)
		return lineRow{l, holder}
	}), nil
}

// lineList has the lines of all held keys.
type lineList []admin.LineInfo

// tally returns how many callers wait.
func (all lineList) tally() (n int) {
	for _, l := range all {
		n += l.Waiting
	}
	return n
}

// allLines returns the lines of all held keys.
func (q *request) allLines() (lineList, freshness) {
	return snapshotOf(q, linesTopic, 2*time.Second, func(ctx context.Context, h *Handler) (lineList, error) {
		return first(mostRows, admin.Lines(ctx, h.claims, h.board.allKeys()))
	})
}
