package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/testetcd"
)

// A stage is what contenders need: servers, and a place for their data. It is
// for one goroutine.
type stage struct {
	options
	data   string // directory that is gone with the stage
	stderr io.Writer
	began  time.Time

	etcds   int // started so far
	etcd    *testetcd.ProcessCluster
	servers map[string]*server // Redis and Postgres, by name
}

func newStage(o options, stderr io.Writer) (*stage, error) {
	data, err := os.MkdirTemp(o.dir, "compare-*")
	if err != nil {
		return nil, err
	}
	// Postgres does not run as root, and must come through to its own part.
	if err := os.Chmod(data, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(data))
	}
	if data, err = filepath.Abs(data); err != nil {
		return nil, err
	}
	return &stage{options: o, data: data, stderr: stderr, began: time.Now(), servers: map[string]*server{}}, nil
}

// close ends all processes and removes all data.
func (st *stage) close() error {
	st.stopEtcd()
	for _, s := range st.servers {
		s.stop()
	}
	return os.RemoveAll(st.data)
}

func (st *stage) progress(format string, args ...any) {
	fmt.Fprintf(st.stderr, "%4.0f s  %s\n", time.Since(st.began).Seconds(), fmt.Sprintf(format, args...))
}

// startEtcd starts an etcd with nothing in it, with fsync, as a process.
func (st *stage) startEtcd() (err error) {
	st.etcds++
	st.etcd, err = testetcd.NewProcessCluster(filepath.Join(st.data, fmt.Sprintf("etcd-%d", st.etcds)), 1,
		testetcd.Quota(8<<30)) // a long comparison writes more than the 2 GiB of the default
	return err
}

// stopEtcd removes its data too: a long comparison would fill the disk.
func (st *stage) stopEtcd() {
	if st.etcd == nil {
		return
	}
	st.etcd.Stop()
	st.etcd = nil
	_ = os.RemoveAll(filepath.Join(st.data, fmt.Sprintf("etcd-%d", st.etcds))) // it is tried again at the end
}

// prefix returns one that nobody else uses, about as long as those of real use.
func prefix() string { return "/" + strings.ToLower(rand.Text()[:8]) + "/" }

// A wire counts what goes over the connections that were dialled with it: each message sent
// is a request, on a stream too, and each time that it is sent. That costs next to nothing.
type wire struct{ sent atomic.Int64 }

// dial returns a client of etcd with a connection of its own. Nothing is sent yet.
func (w *wire) dial(st *stage) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: st.etcd.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream)},
	})
}

func (w *wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	w.sent.Add(1)
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return countedStream{s, w}, nil
}

type countedStream struct {
	grpc.ClientStream
	w *wire
}

func (s countedStream) SendMsg(m any) error {
	s.w.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}

func hangUp(etcd *clientv3.Client) {
	_ = etcd.Close() // it ends with an error of its watches, and nobody needs it any more
}

// closing is how long ends are waited for: with an etcd that answers, and with nothing to
// lose if it does not.
const closing = 10 * time.Second

func closeClaims(c *etcdclaims.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	_ = c.Close(ctx) // what it leaves in etcd is gone with that
}

// session opens one for Mutexes. Its lease lasts as long as those of claims do.
func session(etcd *clientv3.Client) (*concurrency.Session, error) {
	return concurrency.NewSession(etcd, concurrency.WithTTL(int(etcdclaims.DefaultTTL/time.Second)))
}

// A fleet is connections that callers share.
type fleet struct {
	wire
	etcds []*clientv3.Client
}

func newFleet(st *stage, n int) (*fleet, error) {
	f := new(fleet)
	for range n {
		etcd, err := f.dial(st)
		if err != nil {
			f.close()
			return nil, err
		}
		f.etcds = append(f.etcds, etcd)
	}
	return f, nil
}

// of returns the connection of a caller.
func (f *fleet) of(who int) *clientv3.Client { return f.etcds[who%len(f.etcds)] }

// sessions opens n sessions. end ends them, and the fleet.
func (f *fleet) sessions(n int) (all []*concurrency.Session, end func(), err error) {
	end = func() {
		_ = each(16, len(all), func(i int) error { return all[i].Close() })
		f.close()
	}
	for i := range n {
		s, err := session(f.of(i))
		if err != nil {
			end()
			return nil, nil, err
		}
		all = append(all, s)
	}
	return all, end, nil
}

func (f *fleet) close() {
	for _, etcd := range f.etcds {
		hangUp(etcd)
	}
}
