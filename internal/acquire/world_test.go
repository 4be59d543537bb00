package acquire

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/testetcd/testterms"
)

const ttl = testterms.TTL

var layout = testlayers.Layout

// world is the acquirer of a client on an etcd in memory. No caller waits in line.
type world struct {
	*Acquirer
	*testterms.Client
}

// in runs a test in virtual time.
func in(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testlayers.In(t, newWorld, test)
}

// run runs a case of a test.
func run(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		in(t, test)
	})
}

func newWorld() *world {
	w := &world{Client: testterms.New(testterms.Nobody{})}
	w.Acquirer = NewAcquirer(w.Client.Terms, exclusions{w}, func(t *term.Term, _ context.Context, tookOver bool, trace string) {
		w.Note(fmt.Sprintf("began %s, took over %v %s", t.Key, tookOver, trace))
	})
	return w
}

// exclusive is a call for a key that one caller has at a time. shared is one for a key that many have.
func exclusive(key string) *Call {
	return &Call{TTL: ttl, Kind: "exclusive", Mode: protocol.Exclusive{Layout: layout, Key: key}}
}

func shared(key string) *Call {
	return &Call{TTL: ttl, Kind: "shared", Mode: protocol.NewShared(layout, key)}
}

// hold claims a key.
func (w *world) hold(tb testing.TB, o *Call) *term.Term {
	tb.Helper()
	held, err := w.Try(context.Background(), o.Mode.Keys().User, o)
	if err != nil {
		tb.Fatal(err)
	}
	w.Steps()
	w.Take()
	return held
}

// keys lists what etcd has but for sentinels: claims by their keys, and of others the kind.
func (w *world) keys() string {
	count := make(map[string]int)
	w.Etcd.With(func(m *memetcd.Model) {
		for _, k := range m.Under("") {
			name := strings.TrimPrefix(k.Name, layout.Prefix)
			kind, rest, _ := strings.Cut(name, "/")
			switch {
			case kind == "session" && strings.Contains(rest, "/live/"):
			case kind == "own" || kind == "note":
				count[strings.Split(name, "\x00")[0]]++
			default:
				count[kind]++
			}
		}
	})
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(count), "map["), "]")
}

// value returns the value of a key in etcd, or "" if the key does not exist.
func (w *world) value(name string) (value string) {
	w.Etcd.With(func(m *memetcd.Model) { value = m.Get(name).Value })
	return value
}

// balanced checks that sessions have places for the claims that are on their leases, and for no others.
func (w *world) balanced(t *testing.T) {
	t.Helper()
	const most = 8192
	for _, s := range w.Pool.Live() {
		claims := 0
		w.Etcd.With(func(m *memetcd.Model) {
			for _, k := range m.Under(layout.Own("")) {
				if k.Lease == int64(s.ID()) {
					claims++
				}
			}
		})
		same(t, "places taken", most-s.ReserveMore(most+1), claims)
	}
}

func pass(d time.Duration) { testlayers.Pass(d) }

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
