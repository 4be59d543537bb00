package values_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/etcdclaims/claims/internal/explore/values"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// told is a sink that lists what it is given.
type told struct{ all string }

func (t *told) Bool(v bool)    { t.all += fmt.Sprint(" ", v) }
func (t *told) Int(n int64)    { t.all += fmt.Sprint(" ", n) }
func (t *told) Text(s string)  { t.all += fmt.Sprintf(" %q", s) }
func (t *told) Bytes(b []byte) { t.all += fmt.Sprintf(" %x", b) }

type inner struct{ n uint8 }

type outer struct {
	yes     bool
	text    string
	ignored int
	kv      *mvccpb.KeyValue
	none    *inner
	any     any
	list    []inner
}

func TestWalk(t *testing.T) {
	t.Parallel()
	w := values.Walker{Skips: func(_ reflect.Type, f reflect.StructField) bool { return f.Name == "ignored" }}
	v := outer{yes: true, text: "a", ignored: 5, kv: &mvccpb.KeyValue{Key: []byte("k"), Lease: 3}, none: nil, any: inner{7}, list: []inner{{8}, {9}}}
	for range 2 { // the second time it knows the fields
		got := told{}
		w.Walk(&got, reflect.ValueOf(v))
		const want = ` true "a" true 6b 0 0 0  3 false true 1 7 2 8 9`
		if got.all != want {
			t.Errorf("got  %s\nwant %s", got.all, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a function was taken apart")
		}
	}()
	w.Walk(&told{}, reflect.ValueOf(func() {}))
}
