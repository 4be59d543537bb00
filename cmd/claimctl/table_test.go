package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/etcdclaims/claims/etcdclaims"
	"go.yaml.in/yaml/v3"
)

// A table has the columns that fit in 80 characters; wide has all.
func TestTableFits(t *testing.T) {
	t.Parallel()
	long := claimView{
		Key: "orders/" + strings.Repeat("4", 20), Fence: 1<<47 + 123456, Owner: "worker@host-17.example.net-4711",
		Since: noon, Attempt: 3, Note: strings.Repeat("note ", 20), Waiters: 12,
	}
	for format, want := range map[string]string{
		formatTable: "KEY,FENCE,OWNER",
		formatWide:  claimColumns,
	} {
		var out bytes.Buffer
		a := &app{format: format, out: &out}
		if err := printList(a, claimColumns, sequence([]claimView{long, {Key: "a"}})); err != nil {
			t.Fatal(err)
		}
		header, _, _ := strings.Cut(out.String(), "\n")
		if got := strings.Join(strings.Fields(header), ","); got != want {
			t.Errorf("%s has %s, want %s", format, got, want)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); format == formatTable && n > 80 {
				t.Errorf("%d characters: %s", n, line)
			}
		}
	}
	// A text is cut off, and a column without a text makes room for others.
	t1 := &table{header: []string{"A", "EMPTY", "TEXT", "B"}, short: []bool{false, false, true, false}}
	t1.add("a", "", strings.Repeat("x", 100), "b")
	for width, want := range map[int][]int{40: {1, 0, 37, 0}, 110: {1, 0, 100, 1}, 115: {1, 5, 100, 1}} {
		if got := t1.fit(width); !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %v, want %v", width, got, want)
		}
	}
}

// Every table can be sorted by each of its columns: by number, time or text.
func TestTableSorted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client("a")
	for _, key := range []string{"b", "a", "c"} {
		w.claim(c, key, etcdclaims.Note([]byte("of "+key)))
	}
	for by, want := range map[string]string{"key": "a,b,c", "-key": "c,b,a", "fence": "b,a,c", "-FENCE": "c,a,b", "note": "a,b,c"} {
		if got := strings.ReplaceAll(strings.TrimSpace(w.ok("ls", "--sort-by", by, "-o", "name")), "\n", ","); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
	w.fails(exitUsage, `--sort-by "size" is not one of key,fence`, "ls", "--sort-by", "size")
	n := []int{10, 9}
	rows := []itemView{{ID: "ten", Priority: &n[0]}, {ID: "nine", Priority: &n[1]}, {ID: "none"}}
	if sortRows(rows, "priority"); rows[0].ID != "none" && rows[2].ID != "ten" {
		t.Errorf("%+v", rows)
	}
}

// YAML has what JSON has, and texts are texts for every reader.
func TestYAML(t *testing.T) {
	t.Parallel()
	v := map[string]any{"text": "no", "when": "06:31", "number": json.Number("140737488478784"), "list": []any{"a: b\n", nil, true}, "no": map[string]any{}, "empty": []any{}}
	var out bytes.Buffer
	a := &app{format: formatYAML, out: &out}
	if err := a.printJSON(v); err != nil {
		t.Fatal(err)
	}
	var back, want any
	if err := yaml.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(text, &back)
	text, _ = json.Marshal(v)
	_ = json.Unmarshal(text, &want)
	if !reflect.DeepEqual(back, want) || !strings.Contains(out.String(), "when: \"06:31\"") || !strings.Contains(out.String(), "\"no\": {}") {
		t.Errorf("%s", out.String())
	}
}

// A table is printed again when it has changed, until a signal comes.
func TestTableWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, interrupt := context.WithCancel(t.Context())
	read, write := io.Pipe()
	code := make(chan int, 1)
	go func() {
		args := append(w.flags, "ls", "--watch=20ms", "-o", "name", "--sort-by", "-key")
		code <- execute(ctx, args, strings.NewReader(""), write, io.Discard)
		_ = write.Close()
	}()
	lines := bufio.NewScanner(read)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it prints %q, want %q", lines.Text(), want)
		}
	}
	c := w.client("a")
	w.claim(c, "a")
	next("a")
	w.claim(c, "b")
	next("b") // all anew, and once
	next("a")
	interrupt()
	if lines.Scan() || <-code != 0 {
		t.Errorf("it prints %q", lines.Text())
	}
	w.fails(exitUsage, "--watch=-1s is negative", "ls", "--watch=-1s")
}
