package objectguard_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/objectguard"
)

// Two owners of one key, and an owner of another.
var (
	older = fencing.Token{Key: "orders/42", Fence: 33}
	newer = fencing.Token{Key: "orders/42", Fence: 34}
	alien = fencing.Token{Key: "orders/43", Fence: 99}
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants an error that matches all of these, and none of those others that say what
// became of a write.
func wants(t *testing.T, err error, matches ...error) {
	t.Helper()
	for _, want := range matches {
		if !errors.Is(err, want) {
			t.Errorf("got %v, want one that matches %q", err, want)
		}
	}
	for _, other := range []error{fencing.ErrStale, fencing.ErrUnknown, fencing.ErrNoToken, fencing.ErrMalformed, objectguard.ErrConflict, objectguard.ErrRefused} {
		if !slices.Contains(matches, other) && errors.Is(err, other) {
			t.Errorf("%v matches %q", err, other)
		}
	}
}

// has wants the object to have just these data, of this owner.
func has(t *testing.T, o *objectguard.Object, token fencing.Token, data string) {
	t.Helper()
	now, got, err := o.Read(t.Context())
	if err != nil || string(now) != data || got != token {
		t.Errorf("the object has %q of %v (%v), want %q of %v", now, got, err, data, token)
	}
}

func TestLifeOfAnObject(t *testing.T) {
	t.Parallel()
	s := new(shop)
	o := open(t, s, "state")
	_, got, err := o.Read(t.Context())
	wants(t, err, objectguard.ErrNotFound)
	if got != (fencing.Token{}) {
		t.Errorf("%v, before there was any", got)
	}
	must(t, o.Admit(t.Context(), older))
	_, got, err = o.Read(t.Context())
	wants(t, err, objectguard.ErrNotFound)
	if got != older {
		t.Errorf("sealed by %v, want %v", got, older)
	}
	must(t, o.Write(t.Context(), older, nil))
	has(t, o, older, "")
	must(t, o.Write(t.Context(), older, []byte("a\nb")))
	must(t, o.Admit(t.Context(), newer))
	has(t, o, newer, "a\nb") // sealed, and the data stay
	wants(t, o.Write(t.Context(), older, []byte("late")), fencing.ErrStale)
	wants(t, o.Delete(t.Context(), older), fencing.ErrStale)
	wants(t, o.Admit(t.Context(), older), fencing.ErrStale)
	has(t, o, newer, "a\nb")
	must(t, o.Delete(t.Context(), newer))
	_, _, err = o.Read(t.Context())
	wants(t, err, objectguard.ErrNotFound)
	wants(t, o.Write(t.Context(), older, []byte("late")), fencing.ErrStale) // the fence outlives the data
	must(t, o.Update(t.Context(), newer, func(old []byte) ([]byte, error) {
		if old != nil {
			t.Errorf("there are data after Delete: %q", old)
		}
		return []byte("again"), nil
	}))
	has(t, o, newer, "again")
	if first, _, _ := strings.Cut(s.content("state"), "\n"); !strings.HasPrefix(first, "fenced/1 data ") || !strings.HasSuffix(first, " "+newer.String()) {
		t.Errorf("the first line is %q", first)
	}
}

func TestUpdateTellsEmptyFromNone(t *testing.T) {
	t.Parallel()
	for _, store := range []objectguard.Store{new(shop), new(objectguard.Memory)} {
		o := open(t, store, "state")
		must(t, o.Write(t.Context(), older, nil))
		must(t, o.Update(t.Context(), older, func(old []byte) ([]byte, error) {
			if old == nil || len(old) > 0 {
				t.Errorf("old is %#v, want empty data", old)
			}
			return old, nil
		}))
	}
}

func TestUpdateThatFails(t *testing.T) {
	t.Parallel()
	s := new(shop)
	o := open(t, s, "state")
	must(t, o.Write(t.Context(), older, []byte("a")))
	s.counted()
	full := errors.New("disk full")
	err := o.Update(t.Context(), newer, func(old []byte) ([]byte, error) { old[0] = 'x'; return old, full })
	if err != full { //nolint:errorlint // as it is, says the doc
		t.Error(err)
	}
	if got := s.counted(); got != [2]int{1, 0} {
		t.Errorf("%d reads and writes", got)
	}
	has(t, o, older, "a")
}

// What a write costs is part of what the docs promise.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := new(shop)
	ours, theirs := open(t, s, "state"), open(t, s, "state")
	costs := func(what string, reads, writes int, err error, matches ...error) {
		t.Helper()
		if len(matches) == 0 {
			must(t, err)
		} else {
			wants(t, err, matches...)
		}
		if got, want := s.counted(), [2]int{reads, writes}; got != want {
			t.Errorf("%s: %d reads and writes, want %d", what, got, want)
		}
	}
	write := func(o *objectguard.Object, token fencing.Token) error {
		return o.Write(t.Context(), token, []byte("same"))
	}
	costs("the first", 1, 1, write(ours, older))
	costs("the next", 0, 1, write(ours, older))
	costs("a seal of one's own", 1, 0, ours.Admit(t.Context(), older))
	costs("an owner's first", 1, 1, write(theirs, newer))
	costs("a late one, by memory", 1, 1, write(ours, older), fencing.ErrStale)
	costs("a late one", 1, 0, write(ours, older), fencing.ErrStale)
	costs("the new owner's next", 0, 1, write(theirs, newer))
	costs("its deletion", 0, 1, theirs.Delete(t.Context(), newer))
	costs("a newer one in its process", 1, 1, write(theirs, fencing.Token{Key: newer.Key, Fence: 35}))
	costs("a late one in its process", 1, 0, write(theirs, newer), fencing.ErrStale)
	costs("another key's", 1, 0, write(theirs, alien), objectguard.ErrForeign)
}

func TestArguments(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 1025)
	for _, name := range []string{"", long, "a\x00b", "a\nb", "a\xffb"} {
		_, err := objectguard.New(new(shop), name)
		wants(t, err, objectguard.ErrInvalid)
		_, err = objectguard.NewGate(new(shop), name)
		wants(t, err, objectguard.ErrInvalid)
	}
	_, err := objectguard.NewGate(new(shop), long[:1024-63])
	wants(t, err, objectguard.ErrInvalid)
	_, err = objectguard.New(nil, "state")
	wants(t, err, objectguard.ErrInvalid)
	_, err = objectguard.NewGate(nil, "fences/")
	wants(t, err, objectguard.ErrInvalid)

	s := new(shop)
	g, err := objectguard.NewGate(s, long[:1024-64])
	must(t, err)
	o := open(t, s, long[:1024])
	edit := func([]byte) ([]byte, error) { t.Error("edits for nobody"); return nil, nil }
	for token, want := range map[fencing.Token]error{
		{}:                       fencing.ErrNoToken,
		{Key: "k"}:               fencing.ErrNoToken,
		{Fence: 1}:               fencing.ErrMalformed,
		{Key: "k", Fence: -1}:    fencing.ErrMalformed,
		{Key: "k\x00", Fence: 1}: fencing.ErrMalformed,
	} {
		for _, err := range []error{
			g.Admit(t.Context(), token), o.Admit(t.Context(), token), o.Write(t.Context(), token, nil),
			o.Update(t.Context(), token, edit), o.Delete(t.Context(), token),
		} {
			wants(t, err, want)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	wants(t, o.Write(gone, older, nil), context.Canceled)
	if got := s.counted(); got != [2]int{} {
		t.Errorf("%d reads and writes, though nothing was fit to be sent", got)
	}
	must(t, o.Write(t.Context(), older, nil))
	must(t, g.Admit(t.Context(), older))
}

func TestOtherKey(t *testing.T) {
	t.Parallel()
	s := new(shop)
	o := open(t, s, "state")
	must(t, o.Write(t.Context(), older, []byte("a")))
	err := o.Write(t.Context(), alien, []byte("b"))
	wants(t, err, objectguard.ErrForeign)
	for _, part := range []string{`"state"`, older.String(), alien.String()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %s", err, part)
		}
	}
	wants(t, o.Admit(t.Context(), alien), objectguard.ErrForeign)
	has(t, o, older, "a")
}

func TestUnfenced(t *testing.T) {
	t.Parallel()
	s := new(shop)
	o := open(t, s, "state")
	must(t, o.Write(t.Context(), older, []byte("a")))
	good := s.content("state")
	line, _, _ := strings.Cut(good, "\n")
	fields := strings.SplitN(line, " ", 5)
	id := fields[2]
	for what, content := range map[string]string{
		"other content":     `{"state":1}`,
		"empty":             "",
		"a cut":             line,
		"another version":   strings.Replace(good, "fenced/1", "fenced/2", 1),
		"another state":     strings.Replace(good, "data", "Data", 1),
		"data for none":     strings.Replace(good, "data", "none", 1),
		"fence 0":           strings.Replace(good, " 33;", " 0;", 1),
		"a negative fence":  strings.Replace(good, " 33;", " -33;", 1),
		"leading zeros":     strings.Replace(good, " 33;", " 033;", 1),
		"no key":            strings.Replace(good, `;key="orders/42"`, "", 1),
		"an id too short":   strings.Replace(good, id, id[1:], 1),
		"an end too short":  strings.Replace(good, " - ", " "+id[1:]+" ", 1),
		"no end":            strings.Replace(good, " - ", "  ", 1),
		"9 ends":            strings.Replace(good, " - ", " "+strings.Repeat(id+",", 8)+id+" ", 1),
		"no id":             strings.Replace(good, id, "", 1),
		"17 ids":            strings.Replace(good, id, strings.Repeat(id+",", 16)+id, 1),
		"line ends of DOS":  strings.Replace(good, "\n", "\r\n", 1),
		"a line too long":   strings.Repeat("x", 9000) + "\n",
		"a byte order mark": "\ufeff" + good,
	} {
		t.Run(what, func(t *testing.T) {
			s.overwrite("state", []byte(content))
			_, _, err := open(t, s, "state").Read(t.Context())
			wants(t, err, objectguard.ErrForeign)
			for _, err := range []error{
				open(t, s, "state").Write(t.Context(), newer, nil),
				open(t, s, "state").Admit(t.Context(), older),
				open(t, s, "state").Delete(t.Context(), newer),
			} {
				wants(t, err, objectguard.ErrForeign)
				if !strings.Contains(err.Error(), `"state"`) || !strings.Contains(err.Error(), "restore an earlier version") {
					t.Errorf("%q does not say of what, and what to do", err)
				}
			}
			if got := s.content("state"); got != content {
				t.Errorf("it was touched: %q", got)
			}
		})
	}
	// Of what is overwritten while one's own write is on its way nobody can tell.
	s.overwrite("state", []byte(good))
	s.next = inTurn(replyLost)
	s.after = func(name string) { s.overwrite(name, []byte("x")) }
	s.counted()
	wants(t, o.Write(t.Context(), older, []byte("b")), fencing.ErrUnknown, objectguard.ErrForeign)
	if got := s.counted(); got != [2]int{1, 2} {
		t.Errorf("%d reads and writes, though nothing more could be known", got)
	}
}

func TestMarkNames(t *testing.T) {
	t.Parallel()
	s := new(shop)
	g, err := objectguard.NewGate(s, "fences/")
	must(t, err)
	must(t, g.Admit(t.Context(), older))
	var names []string
	for n := range s.objects {
		names = append(names, n)
	}
	if len(names) != 1 || !strings.HasPrefix(names[0], "fences/") || len(names[0]) != len("fences/")+64 {
		t.Fatalf("the marks are %q", names)
	}
	if got := s.content(names[0]); !strings.HasPrefix(got, "fenced/1 none ") || !strings.HasSuffix(got, older.String()+"\n") {
		t.Errorf("the mark is %q", got)
	}
	s.counted()
	must(t, g.Admit(t.Context(), older))
	if got := s.counted(); got != [2]int{1, 0} {
		t.Errorf("%d reads and writes for an equal token", got)
	}
}

func TestMemoryKeepsCopies(t *testing.T) {
	t.Parallel()
	m := new(objectguard.Memory)
	data := []byte("one")
	v, err := m.Create(t.Context(), "a", data)
	must(t, err)
	data[0] = 'x'
	got, gotVersion, err := m.Read(t.Context(), "a")
	must(t, err)
	if string(got) != "one" || gotVersion != v {
		t.Errorf("%q at %s, want one at %s", got, gotVersion, v)
	}
	got[0] = 'y'
	if got, _, _ := m.Read(t.Context(), "a"); string(got) != "one" {
		t.Errorf("%q", got)
	}
	_, err = m.Create(t.Context(), "a", nil)
	wants(t, err, objectguard.ErrConflict)
	w, err := m.Replace(t.Context(), "a", []byte("one"), v)
	must(t, err)
	if w == v {
		t.Errorf("the version is %s before and after", v)
	}
	_, err = m.Replace(t.Context(), "a", nil, v)
	wants(t, err, objectguard.ErrConflict)
	_, err = m.Replace(t.Context(), "b", nil, v)
	wants(t, err, objectguard.ErrConflict)
	_, _, err = m.Read(t.Context(), "b")
	wants(t, err, objectguard.ErrNotFound)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = m.Read(gone, "a")
	wants(t, err, context.Canceled)
	_, err = m.Replace(gone, "a", nil, w)
	wants(t, err, context.Canceled, objectguard.ErrRefused)
}
