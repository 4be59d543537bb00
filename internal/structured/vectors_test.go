package structured_test

import (
	"embed"
	"encoding/json"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/internal/structured"
)

// The vectors of the HTTP working group for RFC 9651.
//
//go:embed testdata/structured-field-tests/*.json
var vectors embed.FS

// A vector is a field's value, and what it means.
type vector struct {
	Name       string            `json:"name"`
	HeaderType string            `json:"header_type"`
	Raw        []string          `json:"raw"`
	Expected   []json.RawMessage `json:"expected"` // the value, and the parameters as pairs
	MustFail   bool              `json:"must_fail"`
	CanFail    bool              `json:"can_fail"`
}

// bare returns the value that ParseItem should return.
func bare(t *testing.T, data json.RawMessage) any {
	t.Helper()
	text := string(data)
	if strings.HasPrefix(text, "{") {
		var typed struct {
			Type  string `json:"__type"`
			Value any    `json:"value"`
		}
		if err := json.Unmarshal(data, &typed); err != nil {
			t.Fatal(err)
		}
		if typed.Type == "displaystring" {
			return structured.Display(typed.Value.(string))
		}
		return structured.Other{}
	}
	var s string
	if json.Unmarshal(data, &s) == nil {
		return s
	}
	var n int64
	if json.Unmarshal(data, &n) == nil {
		return n
	}
	return structured.Other{} // a decimal or a boolean
}

func TestVectors(t *testing.T) {
	t.Parallel()
	files, err := vectors.ReadDir("testdata/structured-field-tests")
	if err != nil {
		t.Fatal(err)
	}
	items := 0
	for _, file := range files {
		data, err := vectors.ReadFile("testdata/structured-field-tests/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		var all []vector
		if err := json.Unmarshal(data, &all); err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
		for _, v := range all {
			if v.HeaderType == "item" {
				items++
				v.check(t, file.Name())
			}
		}
	}
	if items != 827 {
		t.Errorf("%d vectors were tried, want 827", items)
	}
}

func (v *vector) check(t *testing.T, file string) {
	t.Helper()
	raw := strings.Join(v.Raw, ", ")
	got, err := structured.ParseItem(raw)
	if v.MustFail || err != nil {
		if !v.MustFail && !v.CanFail || err == nil {
			t.Errorf("%s: %s: %q is %v, %v", file, v.Name, raw, got, err)
		}
		return
	}
	if want := bare(t, v.Expected[0]); got.Value != want {
		t.Errorf("%s: %s: %q is %#v, want %#v", file, v.Name, raw, got.Value, want)
	}
	var pairs [][2]json.RawMessage
	if err := json.Unmarshal(v.Expected[1], &pairs); err != nil {
		t.Fatal(err)
	}
	if len(pairs) != len(got.Parameters) {
		t.Errorf("%s: %s: %q has the parameters %v", file, v.Name, raw, got.Parameters)
	}
	for _, pair := range pairs {
		var name string
		if err := json.Unmarshal(pair[0], &name); err != nil {
			t.Fatal(err)
		}
		if want := bare(t, pair[1]); got.Parameters[name] != want {
			t.Errorf("%s: %s: parameter %s of %q is %#v, want %#v", file, v.Name, name, raw, got.Parameters[name], want)
		}
	}
	// What is of our types is written so that it is read again.
	var again []byte
	switch value := got.Value.(type) {
	case string:
		again = structured.AppendString(nil, value)
	case structured.Display:
		again = structured.AppendDisplayString(nil, string(value))
	default:
		return
	}
	if it, err := structured.ParseItem(string(again)); err != nil || it.Value != got.Value {
		t.Errorf("%s: %s: %q is written as %s, which is %v, %v", file, v.Name, raw, again, it.Value, err)
	}
}
