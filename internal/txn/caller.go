package txn

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Commit sends a transaction that a caller has put together.
type Commit func(cmps []clientv3.Cmp, then, els []clientv3.Op) (*clientv3.TxnResponse, error)

// New returns a transaction for a caller to put together. Its Commit calls commit.
func New(commit Commit) clientv3.Txn { return &caller{commit: commit} }

// NewChecked returns a transaction of which commit sends the message, if check returns
// no error. See also Message and CommitMessage.
func NewChecked(check func(cmps []clientv3.Cmp, lists ...[]clientv3.Op) error,
	commit func(in *pb.TxnRequest, concern []string) (*clientv3.TxnResponse, error),
) clientv3.Txn {
	t := &caller{send: commit}
	t.message = func() (*pb.TxnRequest, error) {
		if err := check(t.cmps, t.then, t.els); err != nil {
			return nil, err
		}
		return Of(t.cmps, t.then, t.els), nil
	}
	t.commit = func([]clientv3.Cmp, []clientv3.Op, []clientv3.Op) (*clientv3.TxnResponse, error) {
		in, err := t.message()
		if err != nil {
			return nil, err
		}
		return t.send(in, t.concern)
	}
	return t
}

// Concerning names what a transaction of NewChecked concerns, as option.Concern does.
func Concerning(t clientv3.Txn, names ...string) clientv3.Txn {
	t.(*caller).concern = names //nolint:forcetypeassert // of NewChecked
	return t
}

// Message returns the message of a transaction of NewChecked, after its check.
func Message(t clientv3.Txn) (*pb.TxnRequest, error) {
	return t.(*caller).message() //nolint:forcetypeassert // of NewChecked
}

// CommitMessage sends a message as t, a transaction of NewChecked, sends its own. The
// message is not checked: it consists of such as Message has returned, or is as small as a
// step of one item or tick.
func CommitMessage(t clientv3.Txn, in *pb.TxnRequest) (*clientv3.TxnResponse, error) {
	c := t.(*caller) //nolint:forcetypeassert // of NewChecked
	return c.send(in, c.concern)
}

type caller struct {
	commit    Commit
	message   func() (*pb.TxnRequest, error)
	send      func(in *pb.TxnRequest, concern []string) (*clientv3.TxnResponse, error)
	concern   []string
	cmps      []clientv3.Cmp
	then, els []clientv3.Op
}

func (t *caller) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

func (t *caller) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *caller) Else(ops ...clientv3.Op) clientv3.Txn {
	t.els = append(t.els, ops...)
	return t
}

func (t *caller) Commit() (*clientv3.TxnResponse, error) { return t.commit(t.cmps, t.then, t.els) }

// Within sends a caller's transaction as the first branch of a guarded one. The
// caller's conditions, if any, are nested in it, so that their failure is not taken
// for the guard's. The response is that of the caller's transaction.
func Within(in *pb.TxnRequest, send func(then []*pb.RequestOp) (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
	if len(in.Compare) == 0 {
		return send(in.Success)
	}
	resp, err := send([]*pb.RequestOp{Nest(in)})
	if err != nil {
		return nil, err
	}
	inner := (*clientv3.TxnResponse)(resp.Responses[0].GetResponseTxn())
	inner.Header = resp.Header
	return inner, nil
}
