package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

// The note that a queue has work comes back soon, also if the read that follows its loss has no answer for a while:
// such a failure costs no long rest.
func TestNoteComesBackAfterAFailedCount(t *testing.T) {
	t.Parallel()
	virtually(t, func(w *world) {
		const note = "queue/active/"
		q, host := w.process(queue.Config{})
		w.enqueue(q, "later", queue.Delay(24*time.Hour))
		w.next(q)
		time.Sleep(2 * time.Minute)
		armed := true
		var saw *claimtest.Injection
		saw = host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, DelayReply: sec / 100, Saw: func(req any) {
			r, ok := req.(*pb.TxnRequest)
			if !ok || !armed {
				return
			}
			for _, op := range r.Success {
				if g := op.GetRequestRange(); g != nil && strings.Contains(string(g.Key), note) {
					armed = false
					time.AfterFunc(sec/200, func() { // the read of whether it is there is answered, and the next one is not
						saw.Remove()
						lost := host.Inject(claimtest.Fault{On: claimtest.Verify, Times: -1, LoseRequest: true, Code: codes.Unavailable})
						time.AfterFunc(8*sec, lost.Remove)
					})
				}
			}
		}})
		w.deleteKeys(note)
		begun := time.Now()
		for len(w.under(note)) == 0 && time.Since(begun) < time.Hour {
			time.Sleep(sec)
		}
		if took := time.Since(begun); armed || took > time.Minute {
			t.Errorf("it was gone for %v; the read was seen: %v", took, !armed)
		}
	})
}
