package record

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// full returns a record with a value in each field.
func full(t *testing.T) Record {
	t.Helper()
	r := Record{
		Key: "k", State: Failed, Attempt: 3, Earlier: 1, Fence: 7, Claim: "c", Owner: "o", Instance: "i", Begun: noon, Ended: noon.Add(1),
		NotBefore: noon.Add(time.Minute), Error: "e", Stack: "s", Result: "a\xffb", Note: "n", AtMostOnce: true,
	}
	for i, v := 0, reflect.ValueOf(r); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("%s is not tested", v.Type().Field(i).Name)
		}
	}
	return r
}

// What is stored is read again, in full.
func TestStoredRecordIsReadAgain(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(r *Record){
		"full":              func(*Record) {},
		"least":             func(r *Record) { *r = Record{Key: r.Key, State: Free} },
		"note of bytes":     func(r *Record) { r.Note = "\xff\x00" },
		"claimed, put back": func(r *Record) { r.State = Claimed },
	} {
		want := full(t)
		edit(&want)
		got, err := Decode("k", &mvccpb.KeyValue{Value: []byte(want.Value().Encode()), ModRevision: 99})
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}

// The keys of the JSON are those that other versions read.
func TestJSONOfARecord(t *testing.T) {
	t.Parallel()
	const want = `{"v":1,"state":"failed","attempt":3,"earlier":1,"fence":"7","claim":"c","owner":"o","instance":"i","begun":"2026-01-02T12:00:00Z",` +
		`"ended":"2026-01-02T12:00:00.000000001Z","notBefore":"2026-01-02T12:01:00Z","error":"e","stack":"s","note":"n","atMostOnce":true,"result":"Yf9i"}`
	if got := full(t).Value().Encode(); got != want {
		t.Errorf("got %s", got)
	}
	if got := Read([]byte(want)).Claim; got != "c" {
		t.Errorf("the claim is %q", got)
	}
}

// The fence of a claimed record is its own revision, with the epoch, unless it was put back.
func TestFenceOfAClaimedRecord(t *testing.T) {
	t.Parallel()
	r, err := Decode("k", &mvccpb.KeyValue{Value: []byte(`{"v":1,"state":"claimed","attempt":1,"epoch":2,"claim":"c"}`), ModRevision: 5})
	if err != nil || r.Fence != 2<<47+5 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A record of a later version, or of another program, is not guessed at.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	for value, why := range map[string]string{
		`{"v":2,"state":"done"}`: "version 2 is newer", `{"v":1,"state":"new"}`: `state "new"`, `{"v":1,"state":"orphaned"}`: `state "orphaned"`,
		`{`: "unexpected end", ``: "unexpected end",
	} {
		r, err := Decode("k", &mvccpb.KeyValue{Value: []byte(value)})
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), `"k"`) || r.State != Unreadable || !strings.Contains(r.Error, why) {
			t.Errorf("%s: %+v, %v", value, r, err)
		}
	}
}

// A text is cut to whole runes.
func TestLimitText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "short": "short", "exactly 10": "exactly 10", "more than 10": "more th…", "äöüäöü": "äöü…", "a\xff": "a\ufffd",
	} {
		if got := limitText(in, 10); got != want || len(got) > 10 || !utf8.ValidString(got) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
