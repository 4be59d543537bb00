package etcdclaims_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestLines(t *testing.T) {
	t.Parallel()
	virtualCase(t, "lines", func(t *testing.T, w *world) {
		ctx := t.Context()
		a, _ := w.client(etcdclaims.Config{Owner: "a"})
		for _, key := range []string{"k/1", "k/2", "k/3"} {
			tryClaim(t, a, key)
		}
		waiters := 0
		for i, keys := range [][]string{{"k/1"}, {"k/1", "k/3"}} {
			c, _ := w.client(etcdclaims.Config{Owner: fmt.Sprint("b", i)})
			for _, key := range keys {
				waiters++
				acquiring(ctx, c, key)
				eventually(t, "it waits", func() bool { return w.places() == waiters })
			}
		}
		read := func(keys ...string) (lines []admin.LineInfo) {
			for l, err := range admin.Lines(ctx, a, keys) {
				noErr(t, err)
				lines = append(lines, l)
			}
			return lines
		}
		lines := read("k/3", "k/2", "k/1", "other")
		if len(lines) != 2 || lines[0].Key != "k/3" || lines[0].Waiting != 1 || lines[0].Next.Owner != "b1" ||
			lines[1].Key != "k/1" || lines[1].Waiting != 2 || lines[1].Next.Owner != "b0" {
			t.Errorf("lines are %+v", lines)
		}
		line, err := admin.Line(ctx, a, "k/1")
		noErr(t, err)
		if len(line) != 2 || line[0] != lines[1].Next {
			t.Errorf("the line of k/1 is %+v, its summary %+v", line, lines[1])
		}
		if got := read("k/2"); len(got) != 0 {
			t.Errorf("nobody waits for k/2, but: %+v", got)
		}
	})
}

// However many callers wait for other keys, the lines of a few keys cost one request, and
// those of many keys no more than one for each 32.
func TestLinesCostWhatTheirKeysDo(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		a, b := w.peer(), w.peer()
		var keys []string
		for i := range 640 {
			keys = append(keys, fmt.Sprintf("k/%03d", i))
		}
		read := func(keys []string) (lines []admin.LineInfo, requests int64) {
			before := a.Stats().Requests
			for l, err := range admin.Lines(ctx, a, keys) {
				noErr(t, err)
				lines = append(lines, l)
			}
			return lines, a.Stats().Requests - before
		}
		tryClaim(t, a, keys[7])
		tryClaim(t, a, keys[633])
		tryClaim(t, a, "k/slots", etcdclaims.Slots(1))
		for i, key := range []string{keys[7], keys[633], keys[633]} {
			acquiring(ctx, b, key)
			eventually(t, "it waits", func() bool { return w.places() == i+1 })
		}
		acquiring(ctx, b, "k/slots", etcdclaims.Slots(1))
		eventually(t, "it waits", func() bool { return w.places() == 4 })
		if lines, n := read(keys); len(lines) != 2 || n != 1 {
			t.Errorf("%d requests where few wait: %+v", n, lines)
		}
		for i := range 80 { // places of callers in foreign lines
			var puts []clientv3.Op
			for j := range 100 {
				puts = append(puts, clientv3.OpPut(fmt.Sprintf("%swait/%032x/%d", w.Prefix, i, j), "{}"))
			}
			_, err := w.Raw.Txn(ctx).Then(puts...).Commit()
			noErr(t, err)
		}
		lines, n := read(keys)
		if len(lines) != 2 || lines[0].Key != keys[7] || lines[0].Waiting != 1 || lines[1].Key != keys[633] ||
			lines[1].Waiting != 2 || lines[1].Next.Instance != b.Instance() {
			t.Errorf("lines are %+v", lines)
		}
		if n > 21 {
			t.Errorf("%d requests for 640 keys", n)
		}
		lines, n = read([]string{"k/slots", keys[7], "other"})
		if len(lines) != 2 || lines[0].Key != "k/slots" || lines[0].Waiting != 1 || lines[1].Key != keys[7] || n != 1 {
			t.Errorf("%d requests for 3 keys: %+v", n, lines)
		}
	})
}

func TestSessions(t *testing.T) {
	t.Parallel()
	virtualCase(t, "sessions", func(t *testing.T, w *world) {
		a, _ := w.client(etcdclaims.Config{Owner: "a", TTL: 15 * sec})
		b, host := w.client(etcdclaims.Config{Owner: "b", TTL: 30 * sec})
		read := func() (sessions []admin.SessionInfo) {
			for s, err := range admin.Sessions(t.Context(), a) {
				noErr(t, err)
				sessions = append(sessions, s)
			}
			slices.SortFunc(sessions, func(x, y admin.SessionInfo) int { return int(x.TTL - y.TTL) })
			return sessions
		}
		if got := read(); len(got) != 0 {
			t.Errorf("before the first claim: %+v", got)
		}
		tryClaim(t, a, "k")
		tryClaim(t, b, "l")
		got := read()
		if len(got) != 2 || got[0].Owner != "a" || got[0].Instance != a.Instance() || got[0].TTL != 15*sec ||
			got[1].Owner != "b" || got[1].Left < 29*sec || got[1].Since.IsZero() {
			t.Fatalf("sessions are %+v", got)
		}
		host.Cut()
		time.Sleep(20 * sec)
		if got = read(); len(got) != 2 || got[0].Left < 9*sec || got[1].Left > 11*sec {
			t.Errorf("b did not renew for 20 s: %+v", got)
		}
		time.Sleep(15 * sec)
		if got = read(); len(got) != 1 {
			t.Errorf("b is dead, but: %+v", got)
		}
	})
}

func TestSurveyPassthrough(t *testing.T) {
	t.Parallel()
	none := newClient(t, nil, etcdclaims.Config{})
	for range admin.Lines(t.Context(), none, []string{"k"}) {
		t.Error("a passthrough client has a line")
	}
	for range admin.Sessions(t.Context(), none) {
		t.Error("a passthrough client has a session")
	}
}
