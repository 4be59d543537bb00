package fencing_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/etcdclaims/claims/fencing"
)

var (
	_ encoding.TextMarshaler   = fencing.Token{}
	_ encoding.TextAppender    = fencing.Token{}
	_ encoding.TextUnmarshaler = (*fencing.Token)(nil)
)

// texts are the one way in which each token is written.
var texts = map[string]fencing.Token{
	`1234;key="orders/42"`:                           {Key: "orders/42", Fence: 1234},
	`1;key=" "`:                                      {Key: " ", Fence: 1},
	`7;key="a\"b\\c, d;e"`:                           {Key: `a"b\c, d;e`, Fence: 7},
	`7;key="100%"`:                                   {Key: "100%", Fence: 7},
	`7;key=%"caf%c3%a9 %22\100%25%22"`:               {Key: `café "\100%"`, Fence: 7},
	`999999999999999;key="k"`:                        {Key: "k", Fence: 999_999_999_999_999},
	`"1000000000000000";key="k"`:                     {Key: "k", Fence: 1_000_000_000_000_000},
	`"1125899906842625";key=%"%c2%a0"`:               {Key: "\u00a0", Fence: 8<<47 + 1},
	`"9223372036854775807";key="last"`:               {Key: "last", Fence: 1<<63 - 1},
	`140737488355329;key="epoch/1"`:                  {Key: "epoch/1", Fence: 1<<47 + 1},
	`5;key="` + strings.Repeat("k", 1024) + `"`:      {Key: strings.Repeat("k", 1024), Fence: 5},
	`5;key=%"` + strings.Repeat("%c3%a9", 512) + `"`: {Key: strings.Repeat("é", 512), Fence: 5},
}

func TestTextIsOne(t *testing.T) {
	t.Parallel()
	for want, token := range texts {
		if got := token.String(); got != want {
			t.Errorf("%v.String() = %s, want %s", token, got, want)
		}
		if got, err := token.MarshalText(); err != nil || string(got) != want {
			t.Errorf("%v is marshalled as %s, %v", token, got, err)
		}
		if got, err := fencing.Parse(want); err != nil || got != token {
			t.Errorf("Parse(%s) = %#v, %v", want, got, err)
		}
	}
	// For people, whatever the token.
	for want, token := range map[string]fencing.Token{
		`0;key=""`:                             {},
		`-1;key="k"`:                           {Key: "k", Fence: -1},
		`"-9223372036854775808";key=%"%00%ff"`: {Key: "\x00\xff", Fence: -1 << 63},
	} {
		if got := token.String(); got != want {
			t.Errorf("%#v.String() = %s, want %s", token, got, want)
		}
		if got, err := fencing.Parse(want); !errors.Is(err, fencing.ErrMalformed) {
			t.Errorf("Parse(%s) = %v, %v", want, got, err)
		}
	}
}

// What else RFC 9651 lets pass as the same Item.
func TestParseOtherSpellings(t *testing.T) {
	t.Parallel()
	want := fencing.Token{Key: "a", Fence: 12}
	for _, s := range []string{
		` 12;key="a" `,
		`0012;key="a"`,
		`000000000000012;key="a"`,
		`12;  key="a"`,
		`12;key=%"a"`,
		`12;key=%"%61"`,
		`12;key="b";key="a"`,
		`12;key;key="a"`,
		`12;key="a";trace=a4bf92f;x`,
		`12;a=1;b=-1.5;c="s";d=tok/en:x;e=:aGk=:;f=?1;g=@-1659578233;h=%"%f0%9f%94%92";*i_-.*=*;key="a"`,
		`12;e=:aGk:;key="a"`,
		`12;e=:aGl=:;key="a"`,
		`12;e=::;key="a"`,
	} {
		if got, err := fencing.Parse(s); err != nil || got != want {
			t.Errorf("Parse(%s) = %#v, %v", s, got, err)
		}
	}
}

func TestParseMalformed(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"empty":                       "",
		"spaces":                      "   ",
		"no key":                      `12`,
		"another parameter":           `12;Key="a"`,
		"no fence":                    `;key="a"`,
		"only a key":                  `key="a"`,
		"fence 0":                     `0;key="a"`,
		"fence -0":                    `-0;key="a"`,
		"negative":                    `-12;key="a"`,
		"plus":                        `+12;key="a"`,
		"decimal":                     `12.0;key="a"`,
		"point without digits":        `12.;key="a"`,
		"exponent":                    `1e3;key="a"`,
		"hexadecimal":                 `0x12;key="a"`,
		"underscore":                  `1_2;key="a"`,
		"16 digits":                   `1000000000000000;key="a"`,
		"16 digits with zeros":        `0000000000000012;key="a"`,
		"string that is an integer":   `"12";key="a"`,
		"string with zeros":           `"01125899906842625";key="a"`,
		"string with a plus":          `"+1125899906842625";key="a"`,
		"string over int64":           `"9223372036854775808";key="a"`,
		"negative string":             `"-1125899906842625";key="a"`,
		"display string":              `%"1125899906842625";key="a"`,
		"date":                        `@12;key="a"`,
		"token":                       `a12;key="a"`,
		"empty key":                   `12;key=""`,
		"empty display key":           `12;key=%""`,
		"key without quotes":          `12;key=a`,
		"key is a number":             `12;key=1`,
		"key is a Boolean":            `12;key`,
		"key is bytes":                `12;key=:YQ==:`,
		"the last key counts":         `12;key="a";key`,
		"key not closed":              `12;key="a`,
		"key ends in a backslash":     `12;key="a\`,
		"wrong escape":                `12;key="a\n"`,
		"raw UTF-8":                   `12;key="é"`,
		"raw UTF-8 in display":        `12;key=%"é"`,
		"tab in the key":              "12;key=\"a\tb\"",
		"NUL in the key":              "12;key=\"a\x00\"",
		"encoded NUL":                 `12;key=%"a%00"`,
		"encoded line break":          `12;key=%"a%0a"`,
		"upper-case hexadecimal":      `12;key=%"%C3%A9"`,
		"half a byte":                 `12;key=%"%c"`,
		"not UTF-8":                   `12;key=%"%ff"`,
		"surrogate":                   `12;key=%"%ed%a0%80"`,
		"display not closed":          `12;key=%"a`,
		"display without quote":       `12;key=%a`,
		"two header lines":            `12;key="a", 13;key="a"`,
		"comma":                       `12;key="a",`,
		"list":                        `(12);key="a"`,
		"space before semicolon":      `12 ;key="a"`,
		"tab before":                  "\t" + `12;key="a"`,
		"line break behind":           `12;key="a"` + "\r\n",
		"semicolon at the end":        `12;key="a";`,
		"value missing":               `12;key="a";x=`,
		"wrong Boolean":               `12;key="a";x=?2`,
		"wrong bytes":                 `12;key="a";x=:?:`,
		"bytes not closed":            `12;key="a";x=:aGk=`,
		"bytes over lines":            "12;key=\"a\";x=:aG\r\nk=:",
		"wrong date":                  `12;key="a";x=@1.5`,
		"wrong decimal":               `12;key="a";x=1.2345`,
		"long decimal":                `12;key="a";x=1234567890123.1`,
		"lone minus":                  `12;key="a";x=-`,
		"parameter in capitals":       `12;key="a";X=1`,
		"JSON":                        `{"key":"a","fence":12}`,
		"another form":                `a@12`,
		"huge":                        `12;key="` + strings.Repeat("a", 5000) + `"`,
		"key over the limit":          `12;key="` + strings.Repeat("a", 1025) + `"`,
		"key over the limit, encoded": `12;key=%"` + strings.Repeat("%61", 1025) + `"`,
	} {
		got, err := fencing.Parse(s)
		if !errors.Is(err, fencing.ErrMalformed) || got != (fencing.Token{}) {
			t.Errorf("%s: Parse(%.50s) = %#v, %v", name, s, got, err)
			continue
		}
		if len(err.Error()) > 400 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		was := fencing.Token{Key: "was", Fence: 3}
		token := was
		if err := token.UnmarshalText([]byte(s)); !errors.Is(err, fencing.ErrMalformed) || token != was {
			t.Errorf("%s: unmarshalled to %v, %v", name, token, err)
		}
	}
}

func TestTokenInJSON(t *testing.T) {
	t.Parallel()
	type message struct{ Token fencing.Token }
	in := message{fencing.Token{Key: `"é"`, Fence: 8 << 47}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out message
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("%s became %v, %v", b, out, err)
	}
	if b, err := json.Marshal(message{}); !errors.Is(err, fencing.ErrNoToken) {
		t.Errorf("a token without a fence was sent as %s, %v", b, err)
	}
}

func FuzzParse(f *testing.F) {
	for s := range texts {
		f.Add(s)
	}
	f.Add(` 0012;a=1;b=-1.5;c="s";d=tok/en:x;e=:aGk=:;f=?1;g=@-1659578233;h=%"%f0%9f%94%92";*i_-.*=*;key="a" `)
	f.Fuzz(func(t *testing.T, s string) {
		token, err := fencing.Parse(s)
		if err != nil {
			if !errors.Is(err, fencing.ErrMalformed) || token != (fencing.Token{}) {
				t.Fatalf("Parse(%q) = %v, %v", s, token, err)
			}
			return
		}
		// What passes is a token that a gate may judge, and has one text, which
		// is the same token.
		text, err := token.MarshalText()
		if err != nil {
			t.Fatalf("Parse(%q) = %v, which is none: %v", s, token, err)
		}
		if again, err := fencing.Parse(string(text)); err != nil || again != token {
			t.Fatalf("%q is %v, but %q is %v, %v", s, token, text, again, err)
		}
	})
}

func FuzzToken(f *testing.F) {
	for _, token := range texts {
		f.Add(token.Key, token.Fence)
	}
	for _, tt := range invalid {
		f.Add(tt.token.Key, tt.token.Fence)
	}
	f.Fuzz(func(t *testing.T, key string, fence int64) {
		token := fencing.Token{Key: key, Fence: fence}
		text, err := token.MarshalText()
		if valid := token.Validate() == nil; valid != (err == nil) {
			t.Fatalf("%v is valid: %v, but marshalling says %v", token, valid, err)
		}
		parsed, perr := fencing.Parse(token.String())
		switch {
		case err != nil && !errors.Is(perr, fencing.ErrMalformed):
			t.Fatalf("%#v is not valid, but its text %v is read as %#v, %v", token, token, parsed, perr)
		case err == nil && (perr != nil || parsed != token || string(text) != token.String()):
			t.Fatalf("%#v is written %q and %v, and read as %#v, %v", token, text, token, parsed, perr)
		}
		for i := range text {
			if c := text[i]; c < ' ' || c > '~' {
				t.Fatalf("%q is no header's value", text)
			}
		}
	})
}
