package grpcmw_test

import (
	"testing"

	"github.com/etcdclaims/claims/middleware/grpcmw"
	"google.golang.org/grpc/metadata"
)

// Not even a header is sent without a claim.
func TestHeaderOfAClaimedStream(t *testing.T) {
	order := metadata.Pairs("order-state", "paid")
	inWorld(t, "before it is claimed", func(t *testing.T, w *world) {
		svc := &service{chat: func(stream chatServer) error {
			if err := stream.SendHeader(order); err == nil {
				t.Error("the header is sent")
			}
			_, err := stream.Recv()
			return err
		}}
		if _, err := w.Other.TryAcquire(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		c := connect(t, svc, grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}), stamped()...)
		chat, err := c.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if md, err := chat.Header(); len(md.Get("order-state")) > 0 {
			t.Errorf("%v, %v", md, err)
		}
	})
	inWorld(t, "while it is claimed, and after", func(t *testing.T, w *world) {
		svc := &service{chat: func(stream chatServer) error {
			if _, err := stream.Recv(); err != nil {
				t.Error(err)
			}
			if err := stream.SendHeader(order); err != nil {
				t.Error(err)
			}
			w.Revoke(t, "k")
			<-stream.Context().Done()
			if err := stream.SendHeader(order); err == nil {
				t.Error("the header is sent after the loss")
			}
			return nil
		}}
		c := connect(t, svc, grpcmw.Exclusive(w.Claims, byPayload, grpcmw.Config{}), stamped()...)
		chat, err := c.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := chat.Send(askFor("k")); err != nil {
			t.Fatal(err)
		}
		if md, err := chat.Header(); err != nil || len(md.Get("order-state")) != 1 {
			t.Errorf("%v, %v", md, err)
		}
		if _, err := chat.Recv(); err == nil {
			t.Error("the call ends well")
		}
	})
}
