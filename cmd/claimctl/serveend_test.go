package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/cmd/claimctl/serve"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// item enqueues an item, and returns the path and the token of its delivery.
func (s *served) item(ttl int) (path, token string) {
	s.Helper()
	s.wants(201, "", "POST", "queues/q/items", `{"id":"1","payload":1}`)
	got := s.wants(200, "", "POST", "queues/q/claim", fmt.Sprintf(`{"ttl_ms":%d}`, ttl)).Deliveries
	if len(got) != 1 {
		s.Fatalf("got %+v", got)
	}
	return "queues/q/deliveries/" + got[0].ID, got[0].Token
}

// next wants the first attempt of the item to be visible to another process.
func (s *served) next() {
	s.Helper()
	q, err := queue.Open(s.Context(), s.other, "q")
	if err != nil {
		s.Fatal(err)
	}
	batch, err := q.TryClaim(s.Context(), 1)
	if err != nil || len(batch.Deliveries) != 1 || batch.Deliveries[0].Attempt() != 1 {
		s.Errorf("got %+v, %v", batch, err)
	}
}

// A program that took another's id, or whose claim has had another owner since, is refused.
func TestServeToken(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		is := s.wants(201, "", "POST", "claims", `{"key":"k","id":"a"}`)
		path, token := s.item(15000)
		s.wants(428, "fence-missing", "POST", "claims/a/txn", `{"put":[{"key":"/x","value":"1"}]}`)
		for _, to := range []string{
			"POST claims/a/txn", "POST claims/a/heartbeat", "DELETE claims/a", "GET claims/a/watch",
			"GET claims/a", "POST " + path + "/heartbeat", "POST " + path + "/complete",
		} {
			var method, at string
			_, _ = fmt.Sscan(to, &method, &at)
			s.wants(412, "stale", method, at, "", `7;key="k"`)
			s.wants(400, "fence-malformed", method, at, "", "seven")
		}
		s.wants(200, "", "POST", path+"/heartbeat", "", token)
		s.wants(200, "", "POST", "claims/a/heartbeat", "", is.Token)
		s.wants(204, "", "DELETE", "claims/a", "", is.Token)
	})
}

// While the end of a delivery is unknown another worker may have the item: it is not held.
func TestServeLeaving(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		path, _ := s.item(60000)
		lost := s.host.Inject(claimtest.Fault{On: claimtest.Other, LoseReply: true, Times: -1})
		s.wants(503, "unknown-outcome", "POST", path+"/release", "")
		s.next()
		if is := s.wants(200, "", "POST", path+"/heartbeat", ""); is.Held || is.RemainingMS != 0 {
			s.Errorf("got %+v", is)
		}
		lost.Remove()
		s.wants(204, "", "POST", path+"/release", "")
	})
}

// A program whose clock does not count the sleep of the machine has no later deadline by it.
func TestServeWaitsAsleep(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		held, err := s.other.Acquire(s.Context(), "k")
		if err != nil {
			s.Fatal(err)
		}
		waited := make(chan reply)
		go func() { waited <- s.post("claims", `{"key":"k","wait_ms":60000}`) }()
		time.Sleep(2 * time.Second)
		s.host.Suspend(3 * time.Second)
		if err := held.Release(s.Context()); err != nil {
			s.Fatal(err)
		}
		if is := <-waited; is.status != 201 || is.WaitedMS < 2000 || is.WaitedMS > 3000 {
			s.Errorf("got %+v", is)
		}
	})
}

// How long a request waits in line does not bound the time of etcd's replies.
func TestServeShortWait(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		s.host.SetLatency(50*time.Millisecond, 50*time.Millisecond, 0)
		s.wants(201, "", "POST", "claims", `{"key":"k","wait_ms":50}`)
		s.wants(201, "", "POST", "queues/q/items", `{"payload":1}`)
		if got := s.wants(200, "", "POST", "queues/q/claim", `{"wait_ms":20}`).Deliveries; len(got) != 1 {
			s.Errorf("got %+v", got)
		}
	})
}

// The end of a claim is known for a minute, also if fewer are held at the same time.
func TestServeRemembers(t *testing.T) {
	serving(t, serve.Config{MaxHeld: 1}, func(s *served) {
		for _, id := range []string{"a", "b", "c"} {
			s.wants(201, "", "POST", "claims", fmt.Sprintf(`{"key":"k","id":"%s"}`, id))
			s.wants(204, "", "DELETE", "claims/"+id, "")
		}
		s.wants(204, "", "DELETE", "claims/a", "")
	})
}

// left is the context of a request whose program leaves just when it is answered.
type left struct{ context.Context }

func (left) Err() error { return context.Canceled }

// An item that was claimed for a program that is gone is given back, until that is done.
func TestServeUnread(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		s.wants(201, "", "POST", "queues/q/items", `{"id":"1","payload":1}`)
		refused := claimtest.Fault{On: claimtest.Other, Skip: 1, LoseRequest: true, Err: rpctypes.ErrGRPCNoSpace}
		s.host.Inject(refused) // the first time that it is given back
		s.sends(left{context.Background()}, "POST", "queues/q/claim", `{"ttl_ms":60000}`)
		time.Sleep(3 * time.Second)
		s.next()
	})
}

// A worker that lives while the server stops keeps its attempt; without space nobody waits for its item.
func TestServeStopsWorkers(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		path, _ := s.item(5000)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.serve.Stop(s.Context())
		}()
		time.Sleep(2 * time.Second)
		s.wants(200, "", "POST", path+"/heartbeat", "")
		<-stopped
		s.next()
	})
}

func TestServeStopsWithoutSpace(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		s.item(5000)
		s.host.Inject(claimtest.Fault{On: claimtest.Other, Times: -1, LoseRequest: true, Err: rpctypes.ErrGRPCNoSpace})
		began := time.Now()
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		s.serve.Stop(ctx)
		if took := time.Since(began); took > 7*time.Second {
			s.Errorf("it took %v", took)
		}
	})
}

// A queue that was reconfigured is opened anew, and one that nobody uses makes room for others.
func TestServeQueues(t *testing.T) {
	serving(t, serve.Config{}, func(s *served) {
		made := func(cfg queue.Config) *queue.Queue {
			cfg.Name = "q"
			q, err := queue.New(s.other, cfg)
			if err != nil {
				s.Fatal(err)
			}
			return q
		}
		first := made(queue.Config{MaxTaken: 1})
		if _, err := first.Enqueue(s.Context(), queue.NewItem(nil)); err != nil {
			s.Fatal(err)
		}
		_ = first.Close(s.Context())
		s.host.Inject(claimtest.Fault{On: claimtest.Acquire, DelayRequest: 2 * time.Second})
		added := make(chan reply)
		go func() { added <- s.post("queues/q/items", `{"payload":1}`) }()
		time.Sleep(time.Second)
		if err := made(queue.Config{MaxTaken: 2}).Reconfigure(s.Context()); err != nil {
			s.Fatal(err)
		}
		if is := <-added; is.status != 201 {
			s.Errorf("got %+v", is)
		}
		var before int // requests that make sessions
		for _, ttl := range []string{"5100", "5200"} {
			before = len(s.host.Sent(claimtest.Acquire))
			if got := s.wants(200, "", "POST", "queues/q/claim", `{"ttl_ms":`+ttl+`}`).Deliveries; len(got) != 1 {
				s.Errorf("got %+v", got)
			}
		}
		if now := len(s.host.Sent(claimtest.Acquire)); now != before {
			s.Error("each ttl made a session")
		}
		for i := range 257 {
			s.wants(200, "", "POST", fmt.Sprintf("queues/q%d/claim", i), `{}`)
		}
		s.wants(201, "", "POST", "queues/q/items", `{"payload":1}`)
	})
}
