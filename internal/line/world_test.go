package line

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/acquire"
	"github.com/etcdclaims/claims/internal/ownwait"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/term"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/testetcd/testterms"
)

const ttl = testterms.TTL

var layout = testlayers.Layout

// world is the line of a client on an etcd in memory, whose watches deliver what tests have them deliver.
type world struct {
	*Line
	*testterms.Client

	mu       sync.Mutex // guards watches and hangs
	watches  []*watching
	hangs    func(stream string) bool
	shortcut Shortcut
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
	waiters := new(Waiters)
	w := &world{Client: testterms.New(waiters), shortcut: NoShortcut{}}
	etcd, terms := w.Parts.Client, w.Client.Terms
	etcd.Watcher = watcher{w: w}
	w.Line = &Line{
		Acquirer: acquire.NewAcquirer(terms, exclusions{}, func(*term.Term, context.Context, bool, string) {}),
		Waiters:  waiters, Etcd: etcd,
		Watches:  NewWatches(etcd, w.Parts.Store, w.Parts.Outage, w.Parts.Log),
		OwnWaits: ownwait.New(w.Parts.Log, terms.Keys.Made),
		Shortcut: func(*acquire.Attempt) Shortcut { return w.shortcut },
	}
	return w
}

// exclusive is a call for a key that one caller has at a time.
func exclusive(key string) *acquire.Call {
	return &acquire.Call{TTL: ttl, Kind: "exclusive", Mode: protocol.Exclusive{Layout: layout, Key: key}}
}

func pass(d time.Duration) { testlayers.Pass(d) }

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
