package line

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcdclaims/claims/internal/memetcd"
	"github.com/etcdclaims/claims/internal/protocol"
	"github.com/etcdclaims/claims/internal/testetcd/testlayers"
	"github.com/etcdclaims/claims/internal/txn"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// opening is a shortcut that opens once there is news. It notes how it is called.
type opening struct {
	w     *world
	over  *protocol.Over
	news  chan struct{}
	bears bool // an error of the request
}

func (s *opening) Begin(p protocol.Position, _ int64) (end func()) {
	s.w.Note("begins")
	return func() { s.w.Note("ends") }
}

func (s *opening) News() <-chan struct{} { return s.news }
func (s *opening) Opens() *protocol.Over { return s.over }
func (s *opening) Saw(*clientv3.Event)   { s.w.Note("saw") }
func (s *opening) Leave()                { s.w.Note("leaves") }

func (s *opening) Failed(over *protocol.Over, err error) bool {
	s.w.Note(fmt.Sprint("failed ", over != nil, " ", errors.Is(err, rpctypes.ErrPermissionDenied)))
	return s.bears
}

func (s *opening) Took(over *protocol.Over, _ int64) { s.w.Note(fmt.Sprint("took ", over != nil)) }

// A shortcut lets the first in line take the key from its holder. It learns what the attempt sees, and what becomes
// of it.
func TestShortcut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		do    func(x *waiting, s *opening)
		want  string
		calls string // since the wait has begun
	}{
		{"opens", func(_ *waiting, s *opening) { s.news <- struct{}{} }, "won", "ends, took true, leaves"},
		{"news that opens nothing", func(_ *waiting, s *opening) {
			s.over = nil
			s.news <- struct{}{}
		}, "waits", "ends, leaves"},
		{"free before that", func(x *waiting, _ *opening) {
			x.w.Remove(layout.Own("k"))
			x.w.Waiters.DoubtAll()
		}, "won", "ends, took false, leaves"},
		{"an event that leads nowhere", func(x *waiting, _ *opening) {
			pass(time.Second)
			x.w.tells(mvccpb.PUT, own())
		}, "waits", "saw, ends, leaves"},
		{"refused, and waits on", func(x *waiting, s *opening) {
			s.bears = true
			x.w.Answer(testlayers.Once(rpctypes.ErrPermissionDenied), nil)
			s.news <- struct{}{}
			pass(time.Second)
			s.over = nil
		}, "waits", "ends, failed true true, begins, ends, leaves"},
		{"refused", func(x *waiting, s *opening) {
			x.w.Answer(testlayers.Once(rpctypes.ErrPermissionDenied), nil)
			s.news <- struct{}{}
		}, txn.Denied(rpctypes.ErrPermissionDenied).Error(), "ends, failed true true, leaves"},
	} {
		run(t, tt.name, func(t *testing.T, w *world) {
			w.Other(layout.Own("k"), "x")
			var rev int64
			w.Parts.Etcd.With(func(m *memetcd.Model) { rev = m.Revision() })
			s := &opening{w: w, news: make(chan struct{}, 1)}
			s.over = &protocol.Over{Rev: rev, Guard: []*pb.Compare{txn.ModifiedAt([]byte(layout.Own("k")), rev)}}
			w.shortcut = s
			x := w.waits(t, exclusive("k"))
			same(t, "begins", w.Take(), "begins")
			tt.do(x, s)
			same(t, "outcome", x.ends(), tt.want)
			same(t, "calls", w.Take(), tt.calls)
		})
	}
}
