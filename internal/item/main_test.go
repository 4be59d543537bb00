package item_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/explore/etcdmodel"
	"github.com/etcdclaims/claims/internal/item"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	keys = item.NewKeys("/c/", item.Spec{Name: "orders"})
	noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
)

// world is an etcd with a queue.
type world struct {
	*testing.T
	etcd etcdmodel.State
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	w := &world{T: t, etcd: etcdmodel.New(1)}
	w.put(keys.Spec(), `{"v":1}`)
	w.put(keys.Own("s1"), "{}")
	w.put(keys.Own("s2"), "{}")
	return w
}

// do carries out a request, in the form in which etcd gets it.
func (w *world) do(in *pb.TxnRequest) *pb.TxnResponse {
	w.Helper()
	next, resp, err := w.etcd.Txn(in)
	if err != nil {
		w.Fatal(err)
	}
	w.etcd = next
	return resp
}

func (w *world) ask(reads ...*pb.RequestOp) *pb.TxnResponse {
	w.Helper()
	return w.do(&pb.TxnRequest{Success: reads})
}

func (w *world) put(key, value string) {
	w.Helper()
	w.ask(txn.Put([]byte(key), value, int64(0)))
}

func (w *world) delete(key string) {
	w.Helper()
	w.ask(txn.Delete([]byte(key)))
}

// under returns the keys with a prefix.
func (w *world) under(prefix string) []*mvccpb.KeyValue {
	w.Helper()
	return w.ask(txn.Range(prefix)).Responses[0].GetResponseRange().Kvs
}

// enqueue puts an item with two attempts into the queue.
func (w *world) enqueue(id string, vesting time.Time) {
	w.Helper()
	in := item.New{ID: id, Seq: id, Payload: []byte("p"), Priority: item.DefaultPriority, Vesting: vesting, Max: 2}
	if resp := w.do((item.Enqueue{Keys: keys, New: in, Now: noon}).Build()); !resp.Succeeded {
		w.Fatalf("%s is not enqueued", id)
	}
}

// entry reads the only item below a prefix.
func (w *world) entry(prefix string) *item.Entry {
	w.Helper()
	all := w.under(prefix)
	if len(all) != 1 {
		w.Fatalf("%d items below %s", len(all), prefix)
	}
	e, err := keys.Entry(all[0])
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// claim gives the only ready item to a session.
func (w *world) claim(session string) item.Held {
	w.Helper()
	step := item.Claim{
		Keys: keys, Session: session, Items: []*item.Entry{w.entry(keys.Ready())}, Owner: "o", Now: noon, Nonce: session,
	}
	got, second := step.Judge(w.do(step.Build()))
	if len(got) != 1 || second != 0 {
		w.Fatalf("%d items taken, %d keys removed", len(got), second)
	}
	if _, err := got[0].Decode(); err != nil {
		w.Error(err)
	}
	return item.Held{Keys: keys, Session: session, State: got[0].State, Rev: got[0].Rev}
}

// where returns where the items of the queue are, of its indexes.
func (w *world) where() string {
	w.Helper()
	var at []string
	for _, place := range []struct{ name, prefix string }{
		{"ready", keys.Ready()}, {"later", keys.Later()}, {"taken", keys.Taken()}, {"dead", keys.Dead()},
	} {
		for range w.under(place.prefix) {
			at = append(at, place.name)
		}
	}
	return strings.Join(at, " ")
}

// want fails unless the items are where they are to be.
func (w *world) want(where string) {
	w.Helper()
	if got := w.where(); got != where {
		w.Errorf("items are %q, want %q", got, where)
	}
}
