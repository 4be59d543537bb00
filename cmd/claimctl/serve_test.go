package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdclaims/claims/cmd/claimctl/serve"
	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// served is a server of claims in virtual time, and another client.
type served struct {
	*testing.T
	server *claimtest.Server
	host   *claimtest.Host // of the server of claims
	serve  *serve.Server
	other  *etcdclaims.Client
}

// serving runs a test with a server of its own.
func serving(t *testing.T, cfg serve.Config, f func(s *served)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &served{T: t, server: claimtest.Start(t)}
		s.host = s.server.Host(t)
		cfg.Claims = claimtest.NewClient(t, s.host, etcdclaims.Config{Owner: "served"})
		s.other = claimtest.NewClient(t, s.server.Host(t), etcdclaims.Config{Owner: "other"})
		s.serve = serve.New(cfg)
		f(s)
		s.host.RemoveFaults()
		s.host.Heal()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		s.serve.Stop(ended)
	})
}

// reply is the answer to a request: the fields of all of them.
type reply struct {
	status              int
	ID, Key             string
	Fence               string
	Token               string
	Held                bool
	RemainingMS         int64 `json:"remaining_ms"`
	WaitedMS            int64 `json:"waited_ms"`
	Slot                int
	Stopping            bool
	Warning             string
	Revision            int64
	Added, Dead         bool
	Item                string
	Attempt             int
	PayloadBase64       []byte `json:"payload_base64"`
	Payload             json.RawMessage
	Deliveries          []reply
	VisibleMS           int64 `json:"visible_ms"`
	Type, Owner, Detail string
}

// left is how long a lease lasts from the instant before its request.
func (r reply) left() time.Duration {
	return time.Duration(r.RemainingMS+r.WaitedMS) * time.Millisecond
}

var shortID = regexp.MustCompile(`^(claims/|\{.*"id":")([a-f])\b`)

// uuids replaces the id of a claim, which tests name by one letter, in a path or a body.
func uuids(text string) string {
	return shortID.ReplaceAllString(text, "${1}00000000-0000-4000-8000-00000000000$2")
}

// sends sends a request with a context.
func (s *served) sends(ctx context.Context, method, path, body string, token ...string) (is reply) {
	s.Helper()
	if !strings.HasPrefix(path, "/") {
		path = "/v1/" + uuids(path)
	}
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(uuids(body)))
	for _, t := range token {
		r.Header.Set("Fencing-Token", t)
	}
	rec := httptest.NewRecorder()
	s.serve.ServeHTTP(rec, r)
	if rec.Body.Len() > 0 {
		if err := json.Unmarshal(rec.Body.Bytes(), &is); err != nil {
			s.Errorf("%s %s: %s: %v", method, path, rec.Body, err)
		}
	}
	is.status = rec.Code
	return is
}

func (s *served) post(path, body string) reply {
	s.Helper()
	return s.sends(s.Context(), "POST", path, body)
}

// wants sends a request that must have an answer with the status, and the problem if there is one.
func (s *served) wants(status int, problem, method, path, body string, token ...string) reply {
	s.Helper()
	is := s.sends(s.Context(), method, path, body, token...)
	if is.status != status || problem != "" && is.Type != "urn:etcdclaims:problem:"+problem {
		s.Errorf("%s %s: %+v, want %d %s", method, path, is, status, problem)
	}
	return is
}

// etcdHas wants the value of a key.
func (s *served) etcdHas(key, want string) {
	s.Helper()
	got, err := s.other.Etcd().Get(s.Context(), key)
	if err != nil || string(bytes.Join(values(got), nil)) != want {
		s.Errorf("%s is %q, %v, want %q", key, values(got), err, want)
	}
}

func values(resp *clientv3.GetResponse) (all [][]byte) {
	for _, kv := range resp.Kvs {
		all = append(all, kv.Value)
	}
	return all
}

// A program that sends heartbeats keeps its claim; one that is silent has lost it after the
// ttl, and never before the deadline that it computed. What it writes later is refused.
func TestServeSilentProgram(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		is := s.wants(201, "", "POST", "claims", `{"key":"k","id":"a","ttl_ms":3000}`)
		if !is.Held || "claims/"+is.ID != uuids("claims/a") || is.Token != is.Fence+`;key="k"` ||
			is.left() < 2500*time.Millisecond || is.left() > 3*time.Second {
			s.Errorf("got %+v", is)
		}
		var deadline time.Time
		for range 8 {
			time.Sleep(2 * time.Second)
			sent := time.Now()
			is = s.wants(200, "", "POST", "claims/a/heartbeat", "")
			deadline = sent.Add(is.left())
		}
		s.wants(200, "", "POST", "claims/a/txn", `{"put":[{"key":"/x","value":"1"},{"key":"/y","value_base64":"/w=="}]}`, is.Token)
		s.etcdHas("/x", "1")
		s.etcdHas("/y", "\xff")
		next, err := s.other.Acquire(s.Context(), "k")
		if err != nil {
			s.Fatal(err)
		}
		if late := time.Since(deadline); late < 0 || late > time.Second {
			s.Errorf("the key was another's %v after the deadline of the program", late)
		}
		s.wants(412, "lost", "POST", "claims/a/txn", `{"put":[{"key":"/x","value":"2"}]}`, is.Token)
		s.wants(412, "lost", "POST", "claims/a/heartbeat", "")
		s.wants(412, "lost", "DELETE", "claims/a", "")
		s.wants(412, "lost", "GET", "claims/a/watch", "")
		if is := s.wants(200, "", "GET", "claims/a", ""); is.Held || is.RemainingMS != 0 {
			s.Errorf("got %+v", is)
		}
		s.etcdHas("/x", "1")
		for token, want := range map[string]int{is.Token: 412, next.Token().String(): 204, "nonsense": 400, `7;key="j"`: 428} {
			if got := s.sends(s.Context(), "POST", "admit?key=k", "", token); got.status != want {
				s.Errorf("the token %s: %+v, want %d", token, got, want)
			}
		}
		time.Sleep(2 * time.Minute)
		s.wants(200, "", "POST", "queues/q/claim", "{}") // anything that drops old ends
		s.wants(201, "", "POST", "claims", `{"key":"j","id":"b"}`)
		s.wants(404, "not-found", "POST", "claims/a/heartbeat", "")
	})
}

// A machine that slept has been silent, although the timers stood still.
func TestServeSleepingMachine(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		is := s.wants(201, "", "POST", "claims", `{"key":"k","id":"a","ttl_ms":2000}`)
		s.host.Suspend(3 * time.Second) // the lease in etcd lasts longer
		s.wants(412, "lost", "POST", "claims/a/txn", `{"put":[{"key":"/x","value":"1"}]}`, is.Token)
		s.wants(201, "", "POST", "claims", `{"key":"k","id":"b","ttl_ms":2000,"wait_ms":5000}`)
		s.host.StepClock(time.Hour) // until the claim is verified nobody knows how long that was
		s.wants(503, "unknown-outcome", "POST", "claims/b/heartbeat", "")
		time.Sleep(time.Second)
		s.wants(200, "", "POST", "claims/b/heartbeat", "")
	})
}

// etcd refuses the write of a claim that is lost, before the server knows.
func TestServeGuards(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		s.host.Inject(claimtest.Fault{On: claimtest.Watch, Times: -1, DelayReply: 2 * time.Second})
		is := s.wants(201, "", "POST", "claims", `{"key":"k","id":"a"}`)
		s.server.Revoke(s.T, "/etcdclaims/own/k")
		if !s.wants(200, "", "GET", "claims/a", "").Held {
			s.Error("the server knows")
		}
		s.wants(412, "lost", "POST", "claims/a/txn", `{"put":[{"key":"/x","value":"1"}]}`, is.Token)
		s.wants(412, "lost", "POST", "claims/a/heartbeat", "")
		s.etcdHas("/x", "")
	})
}

// Programs wait in line, and give their places up with their connections.
func TestServeLine(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		a := s.wants(201, "", "POST", "claims", `{"key":"k","id":"a","note":"importing"}`)
		if is := s.wants(409, "held", "POST", "claims", `{"key":"k"}`); is.Owner != "served" {
			s.Errorf("got %+v", is)
		}
		began := time.Now()
		s.wants(409, "held", "POST", "claims", `{"key":"k","wait_ms":5000}`)
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			s.Errorf("it took %v", took)
		}
		gone, leave := context.WithCancel(s.Context())
		left := make(chan reply)
		go func() { left <- s.sends(gone, "POST", "claims", `{"key":"k","id":"b","wait_ms":60000}`) }()
		synctest.Wait()
		waited := make(chan reply)
		sent := time.Now()
		go func() { waited <- s.post("claims", `{"key":"k","id":"b","wait_ms":60000}`) }() // the request is repeated
		synctest.Wait()
		leave()
		<-left
		time.Sleep(4 * time.Second)
		s.wants(204, "", "DELETE", "claims/a", "")
		s.wants(204, "", "DELETE", "claims/a", "") // the answer was lost
		is := <-waited
		took := time.Since(sent)
		if is.status/100 != 2 || is.Fence <= a.Fence || is.left() < took+8*time.Second || is.left() > took+15*time.Second {
			s.Errorf("got %+v", is)
		}
		if again := s.wants(200, "", "POST", "claims", `{"key":"k","id":"b"}`); again.Fence != is.Fence || !again.Held {
			s.Errorf("repeated: %+v", again)
		}
		s.wants(409, "id-conflict", "POST", "claims", `{"key":"j","id":"b"}`)
		s.wants(412, "lost", "POST", "claims", `{"key":"k","id":"a","note":"importing"}`)
		if !s.wants(200, "", "POST", "claims/b/owns", "").Held {
			s.Error("not held")
		}
		s.server.Revoke(s.T, "/etcdclaims/own/k")
		if s.wants(200, "", "POST", "claims/b/owns", "").Held {
			s.Error("held")
		}
		one := s.wants(201, "", "POST", "claims", `{"key":"licence","slots":2}`)
		if two := s.wants(201, "", "POST", "claims", `{"key":"licence","slots":2}`); one.Slot+two.Slot != 1 {
			s.Errorf("got %+v and %+v", one, two)
		}
		s.wants(400, "bad-request", "POST", "claims", `{"key":"licence","slots":3}`)
		s.wants(400, "bad-request", "POST", "claims", `{"key":"sched/x"}`)
		s.wants(201, "", "POST", "claims", `{"key":"data","shared":true}`)
		s.wants(201, "", "POST", "claims", `{"key":"data","shared":true}`)
	})
}

// A watch with hold releases its claim when it is closed, and reports its end.
func TestServeWatch(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		watch := func(path string) (events chan string, closes func()) {
			ctx, cancel := context.WithCancel(s.Context())
			rec := httptest.NewRecorder()
			events = make(chan string, 1)
			go func() {
				s.serve.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/v1/"+uuids(path), nil))
				events <- rec.Body.String()
			}()
			synctest.Wait()
			return events, cancel
		}
		for id, hold := range map[string]bool{"e": false, "f": true} {
			s.wants(201, "", "POST", "claims", fmt.Sprintf(`{"key":"k%v","id":"%s"}`, hold, id))
			events, closes := watch(fmt.Sprintf("claims/%s/watch?hold=%v", id, hold))
			closes()
			<-events
			time.Sleep(time.Second)
			info, err := s.other.Lookup(s.Context(), fmt.Sprintf("k%v", hold))
			if err != nil || info.Held == hold {
				s.Errorf("hold %v: %+v, %v", hold, info, err)
			}
		}
		s.wants(412, "lost", "POST", "claims/f/heartbeat", "")
		s.wants(201, "", "POST", "claims", `{"key":"k","id":"a"}`)
		events, closes := watch("claims/a/watch")
		defer closes()
		s.server.Revoke(s.T, "/etcdclaims/own/k")
		if got := <-events; !strings.HasPrefix(got, `{"event":"held"}`+"\n"+`{"event":"ended","why":"`) {
			s.Errorf("got %s", got)
		}
	})
}

// Without etcd claims end at their deadlines, and answers say so before.
func TestServeOutage(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		s.host.Inject(claimtest.Fault{On: claimtest.Acquire, LoseReply: true})
		is := s.wants(201, "", "POST", "claims", `{"key":"k","id":"a"}`) // the server has found out
		lost := s.host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true, Times: -1})
		s.wants(503, "unknown-outcome", "POST", "claims/a/txn", `{"put":[{"key":"/x","value":"1"}]}`, is.Token)
		lost.Remove()
		s.wants(200, "", "POST", "claims/a/txn", `{"put":[{"key":"/x","value":"1"}]}`, is.Token)
		s.host.Cut()
		time.Sleep(time.Second) // a renewal at the instant of the cut has ended
		// An outage is noticed at the latest by the renewal that is due 5 s after the last one, 5 s of patience
		// and a probe: at least a second before the deadline, whenever the last renewal was.
		time.Sleep(s.wants(200, "", "POST", "claims/a/heartbeat", "").left() - time.Second)
		is = s.wants(200, "", "POST", "claims/a/heartbeat", "")
		if !is.Held || !strings.Contains(is.Warning, "unreachable") || is.left() > time.Second {
			s.Errorf("got %+v", is)
		}
		s.wants(503, "unavailable", "GET", "/healthz", "")
		time.Sleep(is.left())
		s.wants(412, "lost", "POST", "claims/a/heartbeat", "")
		s.host.Heal()
		s.wants(200, "", "GET", "/healthz", "")
		s.wants(201, "", "POST", "claims", `{"key":"k","wait_ms":30000}`)
	})
}

// The item of a worker that is gone is handed on, and the attempt counts. A late worker is refused.
func TestServeQueue(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		s.wants(201, "", "POST", "queues/q/items", `{"id":"1","payload":{"n":1}}`)
		s.wants(200, "", "POST", "queues/q/items", `{"id":"1","payload":{"n":1}}`)
		s.wants(201, "", "POST", "queues/q/items", `{"id":"2","payload_base64":"/w==","priority":200}`)
		claim := func(body string) []reply { return s.wants(200, "", "POST", "queues/q/claim", body).Deliveries }
		got := claim(`{"max":5,"ttl_ms":3000}`)
		if len(got) != 2 || got[0].Item != "1" || string(got[0].Payload) != `{"n":1}` || got[0].Attempt != 1 || !got[0].Held ||
			string(got[1].PayloadBase64) != "\xff" || got[1].Payload != nil || !strings.Contains(got[1].Token, `key="queue/q/item/2"`) {
			s.Fatalf("got %+v", got)
		}
		late, alive := "queues/q/deliveries/"+got[0].ID, "queues/q/deliveries/"+got[1].ID
		waiting := make(chan []reply)
		go func() { waiting <- claim(`{"wait_ms":60000}`) }()
		began := time.Now()
		for range 2 {
			time.Sleep(2 * time.Second)
			s.wants(200, "", "POST", alive+"/heartbeat", "")
		}
		again := <-waiting
		if took := time.Since(began); len(again) != 1 || again[0].Item != "1" || again[0].Attempt != 2 || took > 5*time.Second {
			s.Fatalf("after %v: %+v", took, again)
		}
		s.wants(412, "lost", "POST", late+"/complete", `{"put":[{"key":"/done","value":"late"}]}`)
		for range 2 { // the answer was lost
			s.wants(204, "", "POST", alive+"/complete", `{"put":[{"key":"/done","value":"2"}]}`)
		}
		s.etcdHas("/done", "2")
		s.wants(412, "lost", "POST", alive+"/release", "")
		second := "queues/q/deliveries/" + again[0].ID
		if is := s.wants(200, "", "POST", second+"/fail", `{"error":"no","retry_ms":5000}`); is.Dead || is.VisibleMS != 5000 {
			s.Errorf("got %+v", is)
		}
		if got := claim(`{"wait_ms":2000}`); len(got) != 0 {
			s.Errorf("got %+v", got)
		}
		third := claim(`{"wait_ms":60000}`)[0]
		s.wants(204, "", "POST", "queues/q/deliveries/"+third.ID+"/snooze", `{"delay_ms":1000}`)
		fourth := claim(`{"wait_ms":60000}`)[0]
		s.wants(204, "", "POST", "queues/q/deliveries/"+fourth.ID+"/release", "")
		fifth := claim(`{}`)[0]
		if fifth.Attempt != 3 {
			s.Errorf("got %+v", fifth)
		}
		if is := s.wants(200, "", "POST", "queues/q/deliveries/"+fifth.ID+"/fail", `{"permanent":true}`); !is.Dead {
			s.Errorf("got %+v", is)
		}
		s.wants(409, "dead-letter", "POST", "queues/q/items", `{"id":"1","payload":1}`)
		s.wants(400, "bad-request", "POST", "queues/a%2Fb/items", `{"payload":1}`)
	})
}

// A server that stops acquires and prolongs nothing, and takes nothing away before its time.
func TestServeStops(t *testing.T) {
	serving(t, serve.Config{MaxHeld: 2}, func(s *served) {
		s.wants(201, "", "POST", "claims", `{"key":"k","id":"a","ttl_ms":6000}`)
		waiting := make(chan reply)
		go func() { waiting <- s.post("claims", `{"key":"k","wait_ms":60000}`) }()
		synctest.Wait()
		s.wants(429, "limit", "POST", "claims", `{"key":"j"}`)
		sent := time.Now()
		deadline := sent.Add(s.wants(200, "", "POST", "claims/a/heartbeat", "").left())
		stopped := make(chan time.Time)
		go func() {
			s.serve.Stop(s.Context())
			stopped <- time.Now()
		}()
		synctest.Wait()
		if is := <-waiting; is.Type != "urn:etcdclaims:problem:stopping" {
			s.Errorf("who waited got %+v", is)
		}
		s.wants(503, "stopping", "POST", "claims", `{"key":"j"}`)
		s.wants(503, "stopping", "POST", "queues/q/claim", `{}`)
		s.wants(503, "stopping", "GET", "/healthz", "")
		time.Sleep(3 * time.Second)
		is := s.wants(200, "", "POST", "claims/a/heartbeat", "")
		if !is.Stopping || time.Now().Add(is.left()).After(sent.Add(6*time.Second)) {
			s.Errorf("got %+v", is)
		}
		s.wants(200, "", "POST", "claims/a/txn", `{"delete":["/x"]}`, is.Token)
		if at := <-stopped; at.Before(deadline) || at.Sub(sent) > 7*time.Second {
			s.Errorf("it stopped %v after the heartbeat", at.Sub(sent))
		}
	})
}
