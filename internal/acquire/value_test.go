package acquire

import (
	"reflect"
	"testing"

	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/txn"
)

// The value of a claim is that of its Holder, whichever way it is made: no field is missing, and there is no other.
func TestValue(t *testing.T) {
	t.Parallel()
	for _, owner := range []string{"api-7", `a "quoted" \ <owner>` + "\n\t\x00\xff", "зоя 日本", ""} {
		for _, tt := range []struct {
			name string
			call func(o *Call)
			with func(a *Attempt)
			want protocol.Holder
		}{
			{name: "usual"},
			{name: "a preference of 0", call: func(o *Call) { o.Prefers = true }},
			{name: "preference", call: func(o *Call) { o.Preference = 7 }, want: protocol.Holder{Preference: 7}},
			{name: "suspectable", call: func(o *Call) { o.Suspectable = true }, want: protocol.Holder{Suspectable: true}},
			{
				name: "labels", call: func(o *Call) { o.Labels = []string{"gpu"} },
				want: protocol.Holder{Labels: []string{"gpu"}},
			},
			{
				name: "known to have no labels", call: func(o *Call) { o.Labels = []string{} },
				want: protocol.Holder{Labels: []string{}},
			},
			{name: "epoch", with: func(a *Attempt) { a.Under(&txn.Epoch{Value: 3}) }, want: protocol.Holder{Epoch: 3}},
			{name: "attempt", call: func(o *Call) { o.Beside = &partner{} }, want: protocol.Holder{Attempt: 1}},
		} {
			run(t, tt.name, func(t *testing.T, w *world) {
				w.Client.Terms.Owner = owner
				ac := NewAcquirer(w.Client.Terms, w.Errors, w.Began)
				o := exclusive("k")
				if tt.call != nil {
					tt.call(o)
				}
				s := w.Session(t)
				a := ac.New(s, o.Mode, o)
				defer a.End()
				if tt.with != nil {
					tt.with(a)
				}
				want := tt.want
				want.Claim, want.Owner, want.Instance, want.TTL = a.ID, owner, layout.Instance, int64(ttl.Seconds())
				want.Since = keyspace.TimeText(a.AskedAt())
				text := want.Encode()
				got, err := protocol.DecodeHolder([]byte(a.Value))
				decoded, _ := protocol.DecodeHolder([]byte(text))
				if err != nil || !reflect.DeepEqual(got, decoded) || len(a.Value) != len(text) {
					t.Errorf("got %s, %v, want %s", a.Value, err, text)
				}
			})
		}
	}
}
