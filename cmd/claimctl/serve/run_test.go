package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
)

const anID = "00000000-0000-4000-8000-00000000000a"

// forced stops a server at once.
func forced(s *Server) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	s.Stop(ended)
}

// Calls that wait for etcd keep nobody from sending a heartbeat.
func TestHeartbeatsAreNotRefused(t *testing.T) {
	s := withoutEtcd(t, Config{})
	defer forced(s)
	send(s, "POST", "/v1/claims", `{"key":"k","id":"`+anID+`"}`, nil)
	for range maxRunning {
		s.running <- struct{}{}
	}
	for _, to := range [][2]string{{"POST", "/v1/claims/" + anID + "/heartbeat"}, {"GET", "/v1/claims/" + anID}, {"GET", "/healthz"}} {
		if rec := send(s, to[0], to[1], "", nil); rec.Code != http.StatusOK {
			t.Errorf("%s: %d %s", to, rec.Code, rec.Body)
		}
	}
	is(t, send(s, "POST", "/v1/claims/"+anID+"/owns", "", nil), limit)
}

// anItem is what its verbs end before they return.
type anItem struct{ done chan struct{} }

func (h anItem) Token() fencing.Token                { return fencing.Token{} }
func (h anItem) Err() error                          { return errors.New("ended") }
func (h anItem) Done() <-chan struct{}               { return h.done }
func (h anItem) check() error                        { return nil }
func (h anItem) left() time.Duration                 { return time.Minute }
func (h anItem) giveUp(context.Context, error) error { return nil }
func (h anItem) leave()                              {}

// A verb that is repeated has its first answer, also if the end of its lease was noticed before.
func TestRepeatedVerb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := newLeases(clock.Clock{}, 1, func(*lease, error) {})
		if err := leases.reserve(1); err != nil {
			t.Fatal(err)
		}
		l, h := newLease("l", "l", nil, time.Minute), anItem{make(chan struct{})}
		leases.grant(l, h)
		for range 2 {
			answer, err := leases.finish(t.Context(), l, "verb", func(context.Context) (any, error) {
				close(h.done)
				synctest.Wait()
				return "answer", nil
			})
			if err != nil || answer != "answer" {
				t.Errorf("%v, %v", answer, err)
			}
		}
	})
}

// pipes is a listener in memory. It fails when it is closed.
type pipes chan net.Conn

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }
func (p pipes) Close() error   { return nil }

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, errors.New("too many open files")
	}
	return conn, nil
}

// A listener that fails takes nothing from a program before its time.
func TestListenerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, listener, began := withoutEtcd(t, Config{}), make(pipes), time.Now()
		send(s, "POST", "/v1/claims", `{"key":"k","ttl_ms":3000}`, nil)
		close(listener)
		err := serve(t.Context(), s, listener, nil)
		if took := time.Since(began); err == nil || took < 3*time.Second || took > 4*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A body that never comes ends its connection, also before anybody has read the token. A watch,
// which has none, lasts.
func TestBodyNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, listener := withoutEtcd(t, Config{Token: "secret"}), make(pipes)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() { stopped <- serve(ctx, s, listener, nil) }()
		for name, tt := range map[string]struct {
			head string
			want time.Duration
		}{
			"no token": {"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", bodyTime},
			"token": {"POST /v1/claims/a/heartbeat HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n" +
				"Content-Length: 9\r\n\r\n", bodyTime},
			"slow head": {"POST", bodyTime},
		} {
			client, server := net.Pipe()
			listener <- server
			began := time.Now()
			if _, err := io.WriteString(client, tt.head); err != nil {
				t.Fatal(err)
			}
			_, err := io.Copy(io.Discard, client)
			if took := time.Since(began); err != nil || took < tt.want || took > tt.want+time.Second {
				t.Errorf("%s: after %v: %v", name, took, err)
			}
		}
		stop()
		close(listener)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// A queue that nobody uses makes room for another one, and one in use does not.
func TestIdleQueues(t *testing.T) {
	q := &queues{open: map[string]*openQueue{}}
	var all []*openQueue
	for i := range maxQueues {
		o, first, err := q.enter(fmt.Sprint(i))
		if err != nil || !first {
			t.Fatal(first, err)
		}
		all = append(all, o)
	}
	if _, _, err := q.enter("more"); err == nil {
		t.Error("a queue in use made room")
	}
	q.leave(all[7], false)
	if _, first, err := q.enter("more"); err != nil || !first || q.open["7"] != nil || len(q.open) != maxQueues {
		t.Errorf("%v, %v, %d are open", first, err, len(q.open))
	}
	if o, first, err := q.enter("8"); o != all[8] || first || err != nil || o.users != 2 {
		t.Errorf("%+v, %v, %v", o, first, err)
	}
	q.leave(&openQueue{name: "8", users: 2}, true)
	if q.open["8"] != all[8] {
		t.Error("a stale entry took a fresh one away")
	}
}
