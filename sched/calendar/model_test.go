package calendar_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/sched/calendar"
)

// A model says what cron expressions mean, as plainly and slowly as can be: it
// looks at every time, and takes no thought of the calendar or of zones. Its
// expressions have six fields or seven, with numbers and upper-case letters.
type model struct {
	fields    []string
	loc       *time.Location
	gap, fold string
	times     [3][60]bool // what the first three fields match
}

func newModel(fields []string, loc *time.Location, gap, fold string) model {
	m := model{fields: fields, loc: loc, gap: gap, fold: fold}
	for i, hi := range []int{59, 59, 23} {
		for v := 0; v <= hi; v++ {
			m.times[i][v] = list(fields[i], v, 0, hi)
		}
	}
	return m
}

func (m model) expr() string {
	zone := "TZ=" + m.loc.String() + " "
	if m.loc.String() == "" {
		zone = "" // made up: it has no name that Cron could load
	}
	return fmt.Sprintf("%sGAP=%s FOLD=%s %s", zone, m.gap, m.fold, strings.Join(m.fields, " "))
}

func (m model) followsClock() bool { return m.fields[1][0] == '*' || m.fields[2][0] == '*' }

// matches reports whether the fields match what a clock shows; of t only that
// counts.
func (m model) matches(t time.Time) bool {
	h, mi, s := t.Clock()
	if !m.times[0][s] || !m.times[1][mi] || !m.times[2][h] || !list(m.fields[4], int(t.Month()), 1, 12) {
		return false
	}
	if len(m.fields) == 7 && m.fields[6] != "*" && (t.Year() < 1970 || t.Year() > 2199 || !list(m.fields[6], t.Year(), 1970, 2199)) {
		return false
	}
	date, weekday := m.date(t), m.weekday(t)
	if m.fields[3][0] == '*' || strings.Contains("+*", m.fields[5][:1]) {
		return date && weekday
	}
	return date || weekday
}

// list judges items without letters.
func list(items string, v, lo, hi int) bool {
	for item := range strings.SplitSeq(items, ",") {
		if strings.ContainsAny(item, "LW#") {
			continue
		}
		span, step, stepped := strings.Cut(item, "/")
		n := 1
		if stepped {
			n = atoi(step)
		}
		from, to, ranged := strings.Cut(span, "-")
		a, b := lo, hi
		switch {
		case ranged:
			a, b = atoi(from), atoi(to)
		case stepped && span != "*":
			a = atoi(span)
		case span != "*":
			a, b = atoi(span), atoi(span)
		}
		for i := 0; ; i++ {
			if a == v && i%n == 0 {
				return true
			}
			if a == b {
				break
			}
			if a++; a > hi {
				a = lo
			}
		}
	}
	return false
}

func (m model) date(t time.Time) bool {
	t = time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	last := t
	for last.AddDate(0, 0, 1).Month() == t.Month() {
		last = last.AddDate(0, 0, 1)
	}
	for item := range strings.SplitSeq(m.fields[3], ",") {
		text, near := strings.CutSuffix(item, "W")
		rest, fromEnd := strings.CutPrefix(text, "L")
		aim := 0
		switch {
		case fromEnd && rest == "":
			aim = last.Day()
		case fromEnd:
			aim = last.Day() - atoi(rest[1:])
		case near:
			aim = atoi(text)
		default:
			continue
		}
		if aim < 1 || aim > last.Day() {
			continue
		}
		if near {
			aim = nearestWorkday(last, aim)
		}
		if aim == t.Day() {
			return true
		}
	}
	return list(m.fields[3], t.Day(), 1, 31)
}

func nearestWorkday(last time.Time, aim int) (best int) {
	best = 100
	for d := 1; d <= last.Day(); d++ {
		w := last.AddDate(0, 0, d-last.Day()).Weekday()
		if w != time.Saturday && w != time.Sunday && max(d-aim, aim-d) < max(best-aim, aim-best) {
			best = d
		}
	}
	return best
}

func (m model) weekday(t time.Time) bool {
	items := strings.TrimPrefix(m.fields[5], "+")
	for item := range strings.SplitSeq(items, ",") {
		d, nth, hash := strings.Cut(item, "#")
		if hash && nth != "L" && atoi(d)%7 == int(t.Weekday()) && (t.Day()+6)/7 == atoi(nth) {
			return true
		}
		d, last := strings.CutSuffix(strings.Replace(item, "#L", "L", 1), "L")
		if last && atoi(d)%7 == int(t.Weekday()) && t.AddDate(0, 0, 7).Month() != t.Month() {
			return true
		}
	}
	return list(items, int(t.Weekday()), 0, 6)
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// A view is what a clock shows, at steps of one size, around one transition.
type view struct {
	loc    *time.Location
	step   time.Duration
	from   time.Time // what is due from here
	to     time.Time // to here is compared
	at     []time.Time
	walls  []time.Time // what the clock shows at that instant, as if it were UTC
	shown  map[time.Time][]time.Time
	hidden map[time.Time][]time.Time // left out and never shown, and the first instants after the gaps
}

// clock returns what a clock in t's zone shows.
func clock(t time.Time) time.Time {
	y, mo, d := t.Date()
	h, mi, s := t.Clock()
	return time.Date(y, mo, d, h, mi, s, 0, time.UTC)
}

// look takes a view of one transition.
func look(loc *time.Location, transition time.Time, step time.Duration) view {
	change := clock(transition.In(loc)).Sub(clock(transition.Add(-time.Second).In(loc))) - time.Second
	size := max(change, -change)
	return watch(loc, transition.Add(-size-2*time.Hour), transition.Add(size+2*time.Hour), size+time.Hour, step)
}

// watch takes a view of all changes from from to to. What clocks show is known
// for a margin more, in which every time that comes twice must come again.
func watch(loc *time.Location, from, to time.Time, margin, step time.Duration) view {
	v := view{
		loc: loc, step: step, from: from, to: to,
		shown: map[time.Time][]time.Time{}, hidden: map[time.Time][]time.Time{},
	}
	for u := from.Add(-margin); !u.After(to.Add(margin)); u = u.Add(step) {
		wall := clock(u.In(loc))
		v.at, v.walls = append(v.at, u), append(v.walls, wall)
		v.shown[wall] = append(v.shown[wall], u)
	}
	for i := range v.at[1:] {
		for w := v.walls[i].Add(step); w.Before(v.walls[i+1]); w = w.Add(step) {
			if len(v.shown[w]) == 0 {
				v.hidden[w] = append(v.hidden[w], v.at[i+1])
			}
		}
	}
	return v
}

// due is what the model says is due in the view.
func (m model) due(v view) []time.Time {
	var due []time.Time
	for i, u := range v.at {
		if !m.matches(v.walls[i]) {
			continue
		}
		times := v.shown[v.walls[i]]
		if m.followsClock() || m.fold == "both" || m.fold == "first" && u == times[0] || m.fold == "last" && u == times[len(times)-1] {
			due = append(due, u)
		}
	}
	if !m.followsClock() && m.gap == "fire" {
		for w, after := range v.hidden {
			if m.matches(w) {
				due = append(due, after...)
			}
		}
	}
	due = slices.DeleteFunc(due, func(u time.Time) bool { return !u.After(v.from) || u.After(v.to) })
	slices.SortFunc(due, time.Time.Compare)
	return slices.Compact(due)
}

// compare checks a schedule against the model in a view.
func compare(t *testing.T, m model, v view) {
	t.Helper()
	s, err := calendar.Cron(m.expr(), calendar.InLocation(m.loc))
	if err != nil {
		if strings.Contains(err.Error(), "no day in the given months and years") {
			return
		}
		t.Fatalf("%v", err)
	}
	want := m.due(v)
	if got := slices.Collect(calendar.Between(s, v.from, v.to)); !slices.Equal(got, want) {
		t.Fatalf("%s from %v to %v:\n got %v\nwant %v", m.expr(), v.from.In(m.loc), v.to.In(m.loc), got, want)
	}
}

// transitions finds by looking where the offset of a zone changes.
func transitions(loc *time.Location, from, to time.Time) (found []time.Time) {
	offset := func(t time.Time) int {
		_, o := t.In(loc).Zone()
		return o
	}
	const stride = 6 * time.Hour
	for t := from; t.Before(to); t = t.Add(stride) {
		if offset(t) == offset(t.Add(stride)) {
			continue
		}
		lo, hi := t, t.Add(stride)
		for hi.Sub(lo) > time.Second {
			if mid := lo.Add(hi.Sub(lo) / 2).Truncate(time.Second); offset(mid) == offset(t) {
				lo = mid
			} else {
				hi = mid
			}
		}
		found = append(found, hi)
	}
	return found
}

var modelZones = []string{
	"UTC", "America/New_York", "America/Chicago", "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo",
	"America/Asuncion", "America/Santiago", "America/Havana", "America/Caracas", "America/Nuuk", "America/Scoresbysund",
	"America/Bogota", "America/Argentina/San_Luis", "Europe/London", "Europe/Dublin", "Europe/Berlin", "Europe/Lisbon",
	"Europe/Istanbul", "Europe/Moscow", "Europe/Volgograd", "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun",
	"Africa/Windhoek", "Africa/Khartoum", "Africa/Juba", "Asia/Beirut", "Asia/Gaza", "Asia/Hebron", "Asia/Amman",
	"Asia/Tehran", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Pyongyang", "Asia/Dhaka", "Asia/Tokyo", "Asia/Almaty",
	"Australia/Sydney", "Australia/Adelaide", "Australia/Lord_Howe", "Antarctica/Troll", "Antarctica/Casey",
	"Antarctica/Macquarie", "Pacific/Apia", "Pacific/Fakaofo", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Norfolk",
	"Pacific/Easter", "Pacific/Fiji", "Pacific/Tongatapu", "Pacific/Bougainville", "Atlantic/Azores",
}

// modelFields were chosen to be due around changes of clocks.
var modelFields = []string{
	"0 0 0 * * *", "0 0 1 * * *", "0 0 2 * * *", "0 0 3 * * *", "0 30 0 * * *", "0 30 1 * * *", "0 30 2 * * *", "0 15 2 * * *",
	"0 45 1 * * *", "0 30 23 * * *", "0 59 23 * * *", "0 59 1 * * *", "0 * 1 * * *", "0 * 2 * * *", "0 */10 0-4 * * *",
	"0 15,45 22-3 * * *", "0 0 0-23 * * *", "0 0 * * * *", "0 30 * * * *", "0 * * * * *", "0 0 */2 * * *", "0 */7 1-23/2 * * *",
	"0 0 9 * * *", "0 0 9,17 * * *", "0 0 2 * * 0", "0 30 0 * * 6", "0 0 0 1 * *", "0 0 1 L * *", "0 30 1 * * 0L", "0 30 2 * * 0#2",
	"0 30 1 LW,1W * *", "0 0 2 25-31 * 0", "0 0 2 */2 * 0", "0 20 1-3 29,30 * 5",
}

func load(tb testing.TB, name string) *time.Location {
	tb.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return loc
}

var (
	gaps  = []string{"fire", "skip"}
	folds = []string{"first", "last", "both"}
)

// Every minute around every transition of many zones, and around one time of
// each zone when nothing changes. Each draws its expressions and policies.
func TestModelAroundTransitions(t *testing.T) {
	t.Parallel()
	from, to := instant(t, "2000-01-01 00:00Z"), instant(t, "2031-01-01 00:00Z")
	for i, name := range modelZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loc := load(t, name)
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			for _, at := range append(transitions(loc, from, to), instant(t, "2026-01-17 00:00Z")) {
				v := look(loc, at, time.Minute)
				// Some of them each time: the next transition is much like this one.
				for range someOf(8) {
					text := modelFields[rng.IntN(len(modelFields))]
					compare(t, newModel(strings.Fields(text), loc, gaps[rng.IntN(2)], folds[rng.IntN(3)]), v)
				}
				for range someOf(4) {
					compare(t, randomModel(rng, loc, "0"), v)
				}
			}
		})
	}
}

// Every second, where clocks were changed by odd amounts.
func TestModelToTheSecond(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ zone, from, to string }{
		{"America/New_York", "1883-11-01 00:00Z", "1883-12-01 00:00Z"},
		{"Africa/Monrovia", "1972-01-01 00:00Z", "1972-02-01 00:00Z"},
		{"Asia/Kathmandu", "1919-01-01 00:00Z", "1921-01-01 00:00Z"},
		{"Asia/Manila", "1899-09-01 00:00Z", "1899-10-01 00:00Z"},
		{"Europe/London", "1847-11-01 00:00Z", "1848-01-01 00:00Z"},
		{"Australia/Lord_Howe", "2026-01-01 00:00Z", "2027-01-01 00:00Z"},
		{"America/New_York", "2399-01-01 00:00Z", "2399-12-01 00:00Z"},
	} {
		t.Run(tt.zone, func(t *testing.T) {
			t.Parallel()
			loc := load(t, tt.zone)
			rng := rand.New(rand.NewPCG(3, 4))
			found := transitions(loc, instant(t, tt.from), instant(t, tt.to))
			if len(found) == 0 {
				t.Fatal("the tz database of this machine has no transition there")
			}
			for _, at := range found {
				v := look(loc, at, time.Second)
				wall := clock(at.In(loc))
				all := []string{
					"* * * * * *", "*/7 * 0-23 * * *", "0 * 0-23 * * *", "30 44 0 * * *",
					fmt.Sprintf("* * %d * * *", wall.Hour()), fmt.Sprintf("0 %d %d * * *", wall.Minute(), wall.Hour()),
					fmt.Sprintf("%d %d %d * * *", wall.Second(), wall.Minute(), wall.Hour()),
				}
				for _, i := range rng.Perm(len(all))[:someOf(len(all))] {
					fields := all[i]
					compare(t, newModel(strings.Fields(fields), loc, gaps[rng.IntN(2)], folds[rng.IntN(3)]), v)
				}
				for range someOf(5) {
					compare(t, randomModel(rng, loc), v)
				}
			}
		})
	}
}

// Zones as no government has made them yet: clocks are changed again before the
// times of the change before are over, so that times come three times, or are
// left out and come all the same.
func TestModelOfWildZones(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 9))
	for range someOf(25) {
		u := instant(t, "2026-03-01 00:00Z")
		from := u
		offset := rng.IntN(20) - 10
		changes := []change{{u.Add(-1000 * time.Hour), offset * 3600}}
		for range 6 {
			u = u.Add(time.Duration(1+rng.IntN(20)) * 20 * time.Minute)
			changes = append(changes, change{u, offset*3600 + (rng.IntN(13)-6)*1800})
		}
		v := watch(makeZone(t, changes), from, u.Add(12*time.Hour), 24*time.Hour, time.Minute)
		for range 10 {
			compare(t, randomModel(rng, v.loc, "0", "*/10"), v)
			compare(t, newModel(strings.Fields("0 */10 0-23 * * *"), v.loc, gaps[rng.IntN(2)], folds[rng.IntN(3)]), v)
		}
	}
}

// A change is when clocks are changed, and the offset in seconds from then on.
type change struct {
	at     time.Time
	offset int
}

// makeZone returns a zone without a name, in the format of RFC 8536, version 1.
func makeZone(t *testing.T, changes []change) *time.Location {
	t.Helper()
	n := len(changes)
	data := append([]byte("TZif"), make([]byte, 16)...)
	for _, count := range []int{0, 0, 0, n, n, 4} { // times, types and letters
		data = binary.BigEndian.AppendUint32(data, uint32(count))
	}
	for _, c := range changes {
		data = binary.BigEndian.AppendUint32(data, uint32(c.at.Unix()))
	}
	for i := range changes {
		data = append(data, byte(i))
	}
	for _, c := range changes {
		data = append(binary.BigEndian.AppendUint32(data, uint32(int32(c.offset))), 0, 0)
	}
	loc, err := time.LoadLocationFromTZData("", append(data, "ABC\x00"...))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return loc
}

// Every day of years, for expressions of which the days are what matters.
func TestModelOfDays(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for range someOf(400) {
		m := randomModel(rng, time.UTC, "0", "0", "12")
		s, err := calendar.Cron(m.expr())
		day := time.Date(1996+rng.IntN(120), 1, 1, 12, 0, 0, 0, time.UTC)
		end := day.AddDate(2, 0, 0)
		if err != nil {
			day, end = time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC), time.Date(2012, 1, 1, 12, 0, 0, 0, time.UTC)
		}
		var want []time.Time
		for from := day; day.Before(end); {
			if day = day.AddDate(0, 0, 1); m.matches(day) {
				want = append(want, day)
			}
			if err == nil && !day.Before(end) {
				if got := slices.Collect(calendar.Between(s, from, day)); !slices.Equal(got, want) {
					t.Fatalf("%s:\n got %v\nwant %v", m.expr(), got, want)
				}
			}
		}
		if err != nil && len(want) > 0 {
			t.Fatalf("%v, but on %v it is due", err, want[0])
		}
	}
}

// randomModel draws fields of every form, but for the first ones that are given.
func randomModel(rng *rand.Rand, loc *time.Location, given ...string) model {
	items := func(lo, hi int, letters ...func() string) string {
		if rng.IntN(3) == 0 {
			return "*"
		}
		var all []string
		for range 1 + rng.IntN(3) {
			a, b := lo+rng.IntN(hi-lo+1), lo+rng.IntN(hi-lo+1)
			step := 1 + rng.IntN(hi-lo+1)
			switch form := rng.IntN(5 + 2*len(letters)); form {
			case 0, 1:
				all = append(all, strconv.Itoa(a))
			case 2:
				all = append(all, fmt.Sprintf("%d-%d", a, b))
			case 3:
				all = append(all, fmt.Sprintf("%d-%d/%d", a, b, step))
			case 4:
				all = append(all, fmt.Sprintf("%s/%d", []string{"*", strconv.Itoa(a)}[rng.IntN(2)], step))
			default:
				all = append(all, letters[form%len(letters)]())
			}
		}
		return strings.Join(all, ",")
	}
	n := func(lo, hi int) string { return strconv.Itoa(lo + rng.IntN(hi-lo+1)) }
	fields := []string{
		items(0, 59), items(0, 59), items(0, 23),
		items(1, 31, func() string { return "L" }, func() string { return "L-" + n(1, 30) }, func() string { return "LW" },
			func() string { return "L-" + n(1, 30) + "W" }, func() string { return n(1, 31) + "W" }),
		items(1, 12),
		items(0, 6, func() string { return n(0, 7) + "L" }, func() string { return n(0, 7) + "#L" }, func() string { return n(0, 7) + "#" + n(1, 5) }),
	}
	if rng.IntN(4) == 0 {
		fields[5] = "+" + fields[5]
	}
	if rng.IntN(4) == 0 {
		first := 1970 + rng.IntN(200)
		fields = append(fields, []string{"*", "*/2", "1971/2", fmt.Sprintf("%d,%d", first, first+1), fmt.Sprintf("%d-%d", first, first+rng.IntN(30))}[rng.IntN(5)])
	}
	copy(fields, given)
	return newModel(fields, loc, gaps[rng.IntN(2)], folds[rng.IntN(3)])
}
